"""The fuzzer of nodes, for a moment; `make fuzz` runs it longer."""

from __future__ import annotations

from fuzz import fuzz_node


def test_a_node_bears_whatever_it_is_asked() -> None:
    assert fuzz_node.main(0, seed=20_261_121, requests_min=800) == 800
