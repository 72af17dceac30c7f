"""Metrics of one kind each, as the library of Prometheus wants them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def gauge(name: str, doc: str, value: float) -> Metric:
    """One value."""
    return GaugeMetricFamily(name, doc, value=value)


def gauges(name: str, doc: str, label: str, rows: Iterable[tuple[str, float]]) -> Metric:
    """A value for each value of one label."""
    family = GaugeMetricFamily(name, doc, labels=[label])
    for value_of_label, value in rows:
        family.add_metric([value_of_label], value)
    return family


def counter(name: str, doc: str, value: float) -> Metric:
    """One count."""
    return CounterMetricFamily(name, doc, value=value)


def counters(name: str, doc: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """A count for each row of labels."""
    family = CounterMetricFamily(name, doc, labels=labels)
    for values_of_labels, value in rows:
        family.add_metric(values_of_labels, value)
    return family
