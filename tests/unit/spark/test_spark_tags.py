from __future__ import annotations

from tidelog.spark import find_tag

SPARK_SAYS = """\
[STREAM_FAILED] Query [id = 3e, runId = 7f] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] \
Failed when Python streaming data source perform latestOffset: tidelog.spark.truncation.StreamTruncatedError: \
[LOG_TRUNCATION]{"losses": [{"offset": 60, "topic": "a [b]{c}"}], "v": 1}
orders-0 was truncated, …  SQLSTATE: 38000
=== Streaming Query ===
Current Committed Offsets: {PythonMicroBatchStream: {"v": 1}}
"""


def test_a_tag_is_found_wherever_it_is() -> None:
    found = find_tag(SPARK_SAYS)
    assert found is not None
    assert found.tag == "LOG_TRUNCATION"
    assert found.details == {"losses": [{"offset": 60, "topic": "a [b]{c}"}], "v": 1}
    assert find_tag(RuntimeError(SPARK_SAYS)) == found
    assert find_tag('26/11/27 WARN tidelog.spark: words first. [OFFSET_OUT_OF_RANGE]{"v": 1} and after') == (
        "OFFSET_OUT_OF_RANGE",
        {"v": 1},
    )


def test_only_the_tag_that_is_asked_for_is_found() -> None:
    text = '[ONE]{"v": 1} [TWO]{"v": 2}'
    assert find_tag(text, "TWO") == ("TWO", {"v": 2})
    assert find_tag(text, "THREE") is None


def test_what_is_cut_off_is_no_tag() -> None:
    assert find_tag('[LOG_TRUNCATION]{"losses": [{"off') is None
    assert find_tag("[LOG_TRUNCATION] without") is None
    assert find_tag(None) is None
