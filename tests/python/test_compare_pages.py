"""`make compare`: its pages come from one JSON, rows in which a peer is ahead are named first, and two
runs can be compared. The run here is made up: every row of every section, with figures by its place."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY

BENCH = REPOSITORY / "bench"
sys.path.append(str(BENCH))

from compare import no_gain, pages, results  # noqa: E402
from compare.row import Contender, Measured, Row, ahead, best, lead, ratio  # noqa: E402
from compare.runner import Failed, Way, in_turns  # noqa: E402
from compare.sections import all_sections  # noqa: E402
from compare.table import markdown  # noqa: E402
from mlperf import workloads  # noqa: E402

Json = dict[str, Any]


def contenders(row: Row, at: int) -> list[Contender]:
    """Forebay twice as fast as the peer, and half as fast in every tenth row."""
    factor = 0.5 if at % 10 == 9 else 2.0
    if not row.higher_is_better:
        factor = 1 / factor
    value = 100.0 + at
    return [
        Contender("Forebay", "ours", value * factor, 1.1, 2.0, 3.0, 1 << 20, 1 << 21),
        Contender("AIStore", "peer", value, 1.2, 20.0, 30.0),
        Contender("loopback copies", "roof", value * 4),
    ]


@pytest.fixture
def run() -> Json:
    parameters = {"quick": False, "rounds": 3, "seconds": 0.7}
    document = results.new(parameters, Path("build/dist/forebay"), {"Forebay": "1.2.3"}, {})
    document["missing"] = {"nginx": "it is not installed"}
    at = 0
    for section in all_sections():
        rows = []
        for row in section.rows:
            rows.append(Measured(row, contenders(row, at), {"s3fs": "no such package"}).as_json())
            at += 1
        document["sections"][section.name] = {"title": section.title, "took_s": 1, "rows": rows}
    return results.rounded(document)


def compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(BENCH), "FOREBAY_BENCH_PEERS": "1"}
    command = [sys.executable, "-m", "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def saved(document: Json, path: Path) -> Path:
    results.save(path, document)
    return path


def test_committed_pages_are_those_of_the_committed_run() -> None:
    assert pages.stale(REPOSITORY) == [], "make compare-pages writes them"


def test_the_committed_run_explains_each_row_in_which_a_peer_is_ahead() -> None:
    data = REPOSITORY / pages.DATA
    document = results.load(data) if data.exists() else {"sections": {}}
    behind = [row for row in results.rows(document) if ahead(row) == "peer"]
    unexplained = [row["id"] for row in behind if pages.reason(row) == pages.NO_REASON]
    assert unexplained == []


def test_a_figure_typed_by_hand_makes_a_page_stale(run: Json, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    pages.write(tmp_path, run)
    assert pages.stale(tmp_path) == []
    for path in (pages.PAGE, no_gain.PAGE):
        page = tmp_path / path
        before = page.read_text()
        page.write_text(before.replace(f"{run['machine']['cores']} cores", "99 cores", 1))
        assert pages.stale(tmp_path) == [str(path)]
        page.write_text(before)


def test_data_and_page_of_a_whole_run_stay_small(run: Json, tmp_path: Path) -> None:
    for section in run["sections"].values():
        for row in section["rows"]:
            row["contenders"] += [copy.deepcopy(row["contenders"][1]) for _ in range(6)]
    assert saved(run, tmp_path / "run.json").stat().st_size <= 300_000
    assert len(pages.page(run).splitlines()) <= 200


def test_rows_in_which_a_peer_is_ahead_come_first_with_their_reason(run: Json) -> None:
    row = next(row for row in results.rows(run) if ahead(row) == "peer")
    row["reason"] = "The peer keeps no index."
    heads = [line for line in pages.page(run).splitlines() if line.startswith("## ")]
    assert heads[:2] == ["## How it is measured", "## Where a peer is ahead"]
    part = pages.page(run).partition("## Where a peer is ahead")[2].partition("## ")[0]
    assert row["title"] in part
    assert "The peer keeps no index." in part
    assert pages.NO_REASON in part


def test_a_reason_that_was_found_after_the_run_is_in_its_pages(run: Json, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    defined = next(row for section in all_sections() for row in section.rows if row.reason)
    of_run = next(row for row in results.rows(run) if row["id"] == defined.id)
    of_run["reason"] = ""
    pages.write(tmp_path, run)
    written = results.rows(results.load(tmp_path / pages.DATA))
    assert next(row["reason"] for row in written if row["id"] == defined.id) == defined.reason


def test_the_readme_has_ten_rows_and_names_where_a_peer_is_ahead(run: Json) -> None:
    block = pages.block(run)
    rows = [line for line in block.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == pages.HEADLINES
    for row in results.rows(run):
        if ahead(row) == "peer":
            assert row["title"] in block


def test_every_document_figure_has_a_row_with_its_source(run: Json) -> None:
    part = pages.page(run).partition("## The documents' figures")[2].partition("\n## ")[0]
    for figure in ("1,299 s by direct calls", "2,503 s by the iterable-style dataset",
                   "757.1 s without the connector", "113.14 s with it", "30.135 s", "0.0236 s",
                   "59.8 % faster than fsspec", "90 % faster than fsspec",
                   "ten shards of 1.5 GiB", "7.5 % faster than boto3", "7 % faster than boto3"):  # fmt: skip
        assert figure in part, figure


def test_the_notes_have_the_parameters_of_the_workloads() -> None:
    wanted = markdown(workloads.PARAMETERS, workloads.parameters(), of_text=True)
    assert "\n".join(wanted) in (BENCH / "notes/mlperf.md").read_text()


def test_a_missing_peer_is_named_with_its_reason(run: Json) -> None:
    part = pages.page(run).partition("## Not measured")[2]
    assert "- nginx: it is not installed" in part
    assert "- s3fs: no such package" in part


def test_plots_are_small_pictures_where_matplotlib_is_installed(
    run: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    pictures = [path for path in pages.write(tmp_path, run) if path.suffix == ".png"]
    if importlib.util.find_spec("matplotlib") is None:
        assert pictures == []
        assert capsys.readouterr().err == "no plots: matplotlib is not installed\n"
    else:
        assert [0 < picture.stat().st_size < 200_000 for picture in pictures] == [True, True, True]


def test_the_same_run_agrees_with_itself(run: Json, tmp_path: Path) -> None:
    path = saved(run, tmp_path / "run.json")
    done = compare("agree", path, path)
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_that_disagree_are_listed_by_row(run: Json, tmp_path: Path) -> None:
    other = copy.deepcopy(run)
    changed = results.rows(other)[0]
    ours = lead(changed)
    assert ours is not None
    ours["value"] /= 1_000
    paths = saved(run, tmp_path / "1.json"), saved(other, tmp_path / "2.json")
    done = compare("agree", *paths)
    assert done.returncode == 1
    row_id = changed["id"]
    assert done.stdout == f"{row_id}: ours ahead by 2.00 × in the first run, peer ahead by 500.00 × in the second\n"


def of_ratio(ratio: float, spread: float = 1.0) -> Json:
    """A run of one row in which ours has so many times the peer's rate."""
    made = [Contender("Forebay", "ours", ratio, spread), Contender("AIStore", "peer", 1.0, spread)]
    return {"sections": {"x": {"rows": [Measured(Row("x/y", "title"), made).as_json()]}}}


@pytest.mark.parametrize(("first", "second", "agree"), [
    (1.02, 0.97, True), (1.02, 1.5, True), (0.97, 0.5, True), (1.02, 0.94, True), (1.06, 0.94, False),
])  # fmt: skip
def test_runs_contradict_each_other_where_another_side_is_clearly_ahead(
    first: float, second: float, agree: bool
) -> None:
    assert (results.disagreements(of_ratio(first), of_ratio(second)) == []) == agree


def test_a_row_is_level_where_rounds_of_both_sides_overlap() -> None:
    runs = of_ratio(1.15, spread=1.2), of_ratio(0.8, spread=1.2)
    assert results.disagreements(*runs) == []
    assert results.undecided(*runs) == [
        "x/y: ours ahead by 1.15 ×, level in the first run, peer ahead by 1.25 × in the second"
    ]


def test_rows_that_are_level_are_named_when_runs_are_compared(tmp_path: Path) -> None:
    paths = [saved(of_ratio(ratio) | {"schema": 1}, tmp_path / f"{ratio}.json") for ratio in (1.02, 0.5)]
    done = compare("agree", *paths)
    assert done.returncode == 0
    assert "x/y: ours ahead by 1.02 ×, level in the first run" in done.stdout


def test_a_level_row_in_which_a_peer_is_ahead_needs_no_other_reason(run: Json) -> None:
    assert pages.reason(of_ratio(0.97)["sections"]["x"]["rows"][0]) == "level: rounds differ by 5%"
    assert pages.reason(of_ratio(0.94)["sections"]["x"]["rows"][0]) == pages.NO_REASON


def test_loads_without_a_gain_have_the_figures_of_the_run(run: Json) -> None:
    row = next(row for row in results.rows(run) if row["id"] == "clouds/composed")
    row["contenders"] = [
        asdict(Contender("Forebay, one by one", "ours", 1_000.0)),
        asdict(Contender("Forebay, composed", "ours", 440.0)),
    ]
    text = pages.no_gain_page(run)
    assert "| 440/s | Forebay, one by one: 1,000/s | 0.44 × |" in text.replace("objects/s", "/s")
    assert "not measured: no such package" in text, "s3torchconnector on MinIO is not in this run"


def test_each_load_without_a_gain_is_of_a_row_that_exists() -> None:
    known = {row.id for section in all_sections() for row in section.rows}
    assert {figure.row for case in no_gain.CASES for figure in case.figures} <= known


def test_agree_refuses_what_is_no_run(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"schema": 99}))
    done = compare("agree", wrong, wrong)
    assert done.returncode == 2
    assert done.stderr == f"error: {wrong}: schema 99, and this program reads 1: run it again\n"


def test_an_unknown_section_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    done = compare("--only", "nothing", "--out", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no section nothing; there are feeding, checkpoints, batches")


def test_seconds_and_rates_are_compared_the_right_way_round() -> None:
    for higher in (True, False):
        faster, slower = (2.0, 1.0) if higher else (1.0, 2.0)
        made = [Contender("Forebay", "ours", faster), Contender("AIStore", "peer", slower)]
        row = Measured(Row("x/y", "title", "s", higher), made).as_json()
        peer = best(row)
        assert peer is not None
        assert (ahead(row), ratio(row, peer)) == ("ours", 2.0)


def test_contenders_take_turns_and_a_peer_that_fails_is_skipped() -> None:
    turns: list[str] = []

    def way(name: str, fails: bool = False) -> Way:
        def one_round() -> float:
            turns.append(name)
            if fails:
                raise OSError("no route")
            return 10

        return Way(name, "ours" if name == "a" else "peer", one_round)

    measured = in_turns(Row("x/y", "title"), [way("a"), way("b"), way("c", fails=True)], rounds=2)
    assert turns == ["c", "b", "a", "a", "b", "b", "a"]
    assert [one.name for one in measured.contenders] == ["a", "b"]
    assert measured.skipped == {"c": "no route"}


def test_our_own_failure_ends_a_section() -> None:
    def fails() -> float:
        raise OSError("no route")

    with pytest.raises(Failed, match="x/y: Forebay: no route"):
        in_turns(Row("x/y", "title"), [Way("Forebay", "ours", fails)], rounds=1)
