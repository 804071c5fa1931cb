"""The page of ``inspect --sizes``: what uses the space, with the numbers of the document and without keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ttlsnap.amounts import age, exact_size, number, size

from ..samples import sample
from .making import AGG, Pages, Parsed, keys_of

WEEK = ["--ttl", "7d", "--timestamp", "value.max"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    made = Pages(tmp_path_factory.mktemp("pages"))
    for name in (AGG, "alarms-4.2"):
        sample(name, made.folder)
    made.make("agg", "inspect", AGG, "--sizes", *WEEK)
    made.make("agg-keys", "inspect", AGG, "--sizes", *WEEK, "--show-keys")
    made.make("alarms", "inspect", "alarms-4.2", "--sizes")
    return made


def test_the_page_has_the_sizes_of_the_document(pages: Pages) -> None:
    page, sizes = Parsed(pages.folder / "agg.html"), pages.documents["agg"]["sizes"]
    (state,) = sizes["states"]
    for words in (size(state["bytes"]), size(state["key_bytes"]), number(state["would_free"]["entries"])):
        assert f">{words}<" in page.html
    for partition in sizes["stores"][0]["partitions"]:
        assert page.html.count(f">0.default, partition {partition['partition']}<") == 1  # the chart
        assert f">{size(partition['file_bytes'])}<" in page.html
    for batch in sizes["growth"]["batches"]:
        assert f">{size(batch['file_bytes'])}<" in page.html
    for words in (exact_size(state["key_sizes"]["p50"]), age(state["ages"]["seconds"]["p90"])):
        assert f">{words}<" in page.html
    assert not page.wrong and page.tags.count("polyline") == 1


def test_the_ages_have_the_cut_off_between_kept_and_expired_ones(pages: Pages) -> None:
    page = Parsed(pages.folder / "agg.html")
    order = re.findall(r">(5d to 7d|7d to 10d|cut-off: older entries have expired)<", page.html)
    assert order[:3] == ["5d to 7d", "cut-off: older entries have expired", "7d to 10d"]
    ages = pages.documents["agg"]["sizes"]["states"][0]["ages"]
    for bucket in ages["buckets"]:
        if bucket["entries"]:
            assert (
                re.search(rf">[^<]*to {bucket['up_to']}<", page.html) and f">{number(bucket['entries'])}<" in page.html
            )


def test_large_entries_have_their_keys_only_if_these_were_asked_for(pages: Pages) -> None:
    keys = {name: keys_of(pages.folder / target) for name, target in (("agg", AGG), ("alarms", "alarms-4.2"))}
    for name, some in keys.items():
        text = (pages.folder / f"{name}.html").read_text()
        assert not some & set(re.findall(r"[\w-]+", text))
        assert "Large entries" in text and "The keys are left out." in text
    assert "Keys with the most rows" in (pages.folder / "alarms.html").read_text()
    largest = pages.documents["agg-keys"]["sizes"]["states"][0]["largest"]
    with_keys = Path(pages.folder / "agg-keys.html").read_text()
    assert all(entry["key"]["key"] in with_keys for entry in largest)
