"""Facts of the documents that code decides: links, limits, names and defaults agree with the source."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
RECORDS = ROOT / "docs/decisions"
RECORD_SECTIONS = ["Context", "Decision", "Alternatives", "Consequences", "Status"]
MAX_RECORD_LINES = 60
MAX_PERFORMANCE_LINES = 200
MAX_MAP_LINES = 540


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def flat(name: str) -> str:
    """A document's text with every run of whitespace as one space."""
    return " ".join(text(name).split())


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower().replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def documents() -> list[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]


def bytes_of(shift: str) -> int:
    """The value of a Rust constant such as `256 << 10`."""
    number, _, by = shift.replace("_", "").partition("<<")
    return int(number) << int(by or 0)


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in documents():
        for link in LINK.findall(CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))):
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
            elif heading and target.suffix == ".md":
                found = {anchor(h) for h in HEADING.findall(target.read_text(encoding="utf-8"))}
                if heading not in found:
                    broken.append(f"{page.relative_to(ROOT)}: {link} (no such heading)")
    assert not broken


def test_code_names_documents_that_exist() -> None:
    command = ["git", "-C", str(ROOT), "grep", "-hoE", r"docs/[A-Za-z0-9_./-]+\.md", "--"]
    command += ["*.rs", "*.toml", "*.sh", "ci", "sdk/python", "pytorch/src", "bench", "deploy"]
    named = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert named
    assert sorted({name for name in named if not (ROOT / name).exists()}) == []


def test_every_decision_has_its_sections_its_length_and_its_row_in_the_index() -> None:
    records = sorted(RECORDS.glob("[0-9]*.md"))
    numbers = [record.name[:4] for record in records]
    assert numbers == [f"{n:04}" for n in range(1, len(records) + 1)]
    index = re.findall(r"\[(\d{4})\]\(([\w-]+\.md)\)", text("docs/decisions/README.md"))
    assert index == [(record.name[:4], record.name) for record in records]
    for record in records:
        body = record.read_text(encoding="utf-8")
        assert body.startswith(f"# {record.name[:4]}. "), record.name
        assert re.findall(r"^## (.*)$", body, re.MULTILINE) == RECORD_SECTIONS, record.name
        assert len(body.splitlines()) <= MAX_RECORD_LINES, record.name


def test_the_page_of_current_results_stays_short() -> None:
    assert len(text("docs/performance.md").splitlines()) <= MAX_PERFORMANCE_LINES


def test_older_versions_move_with_their_objects() -> None:
    assert "::Versions" in text("target/src/job/rebalance.rs")
    assert "Older versions of objects (S3) move with them." in flat("docs/semantics.md")
    for page in ("docs/semantics.md", "docs/roadmap.md"):
        assert "do not move when targets" not in flat(page), page


def test_the_chart_says_how_targets_are_drained() -> None:
    assert "forebay node drain" in text("cli/src/nodes.rs")
    assert "forebay node drain" in text("deploy/helm/forebay/README.md")


@pytest.mark.parametrize("name", ["a//b", "./c", "d/"])
def test_names_that_native_buckets_refuse_over_v1_are_named(name: str) -> None:
    rule = re.search(r'matches!\(part, ("[^)]*)\)', text("core/src/name/object.rs"))
    assert rule and set(re.findall(r'"([^"]*)"', rule.group(1))) & set(name.split("/"))
    refused = re.search(r"valid names over S3 .*? refuse them", flat("docs/semantics.md"))
    assert refused and f"`{name}`" in flat("docs/semantics.md")[: refused.end()]


@pytest.mark.parametrize("source", ["gateway/src", "crates/v1/src"])
def test_every_setting_that_code_reads_is_in_the_list_of_settings_with_an_effect(
    source: str,
) -> None:
    effective = flat("docs/compat.md").split("These settings take effect")[1]
    effective = effective.split("All other settings")[0]
    read = set()
    for file in sorted((ROOT / source).rglob("*.rs")):
        read |= set(re.findall(r'settings\.text\("([\w.]+)"\)', file.read_text(encoding="utf-8")))
    assert read
    for setting in read:
        section, _, last = setting.partition(".")
        assert section in effective and f"{last}`" in effective, setting


def test_the_built_in_s3_keys_are_all_named() -> None:
    published = text("core/src/config.rs").partition("const PUBLISHED_KEYS")[2].partition("];")[0]
    pairs = re.findall(r'\("(\w+)", "(\w+)"\)', published)
    assert len(pairs) == 2
    for access, secret in pairs:
        assert access in text("docs/s3.md") and secret in text("docs/s3.md")


def test_the_example_of_s3_settings_shows_the_default_of_root() -> None:
    # `#[derive(Default)]` of a bool.
    assert re.search(
        r"derive\([^)]*Default[^)]*\)\]\s*#\[serde[^\n]*\n"
        r"pub struct S3Config",
        text("core/src/config.rs"),
    )
    assert re.search(r"^root = false\b", text("docs/s3.md"), re.MULTILINE)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/where.md"])
def test_files_that_contributing_and_the_map_of_files_name_exist(page: str) -> None:
    folders = "core|target|gateway|node|client|cli|sdk|pytorch|tests|docs|bench|deploy|ci"
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", text(page))
    assert len(named) > 10
    placeholder = re.compile(r"\b(?:NAME|KIND)\b")
    files = [name for name in named if not placeholder.search(name)]
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert "enum JobKind" in text("core/src/job/kind.rs")


def test_every_command_and_class_is_in_the_map_of_files() -> None:
    page = text("docs/where.md")
    commands = text("docs/cli.md").split("\n## Commands")[1].split("\n## ")[0]
    names = re.findall(r"\[`forebay ([\w -]+)`\]", commands)
    words = {word for name in names for word in name.split()}
    named = set(re.findall(r"[\w-]+", page.split("\n## Commands")[1].split("\n## ")[0]))
    assert words and words <= named
    errors = re.findall(r"^class (\w+)", text("sdk/python/forebay/errors.py"), re.MULTILINE)
    for package in ("sdk/python/forebay", "pytorch/src/forebay_torch"):
        public = re.findall(r'^    "([A-Z]\w+)",$', text(f"{package}/__init__.py"), re.MULTILINE)
        assert public
        assert [name for name in public if f"`{name}`" not in page and name not in errors] == []


def test_modules_of_forebay_torch_in_the_map_of_files_exist() -> None:
    table = text("docs/where.md").split("\n## PyTorch")[1].split("\n## ")[0]
    modules = re.findall(r"`([\w/]+\.py)`", table)
    assert modules
    assert [m for m in modules if not (ROOT / "pytorch/src/forebay_torch" / m).exists()] == []


def test_names_in_the_map_of_files_are_in_their_files() -> None:
    page = text("docs/where.md")
    entries = re.findall(r"`([\w./-]+\.(?:rs|py|tpl))` \(((?:[^()`]|`[^`]*`)*)\)", page)
    assert len(entries) > 300
    absent = []
    for path, words in entries:
        folders = ("", "pytorch/src/forebay_torch", "deploy/helm/forebay/templates")
        file = next((f for f in (ROOT / folder / path for folder in folders) if f.is_file()), ROOT)
        code = file.read_text(encoding="utf-8") if file.is_file() else ""
        names = re.findall(r"`(_?[A-Z][A-Z_0-9]+|[A-Z]\w+|forebay\.\w+)`", words)
        absent += [f"{path}: {n}" for n in names if not re.search(rf"\b{re.escape(n)}\b", code)]
    assert absent == []


def test_the_map_of_files_stays_readable() -> None:
    assert len(text("docs/where.md").splitlines()) <= MAX_MAP_LINES


def test_every_error_code_is_in_the_table_of_errors_as_the_code_has_it() -> None:
    def arms(name: str, function: str, result: str) -> dict[str, str]:
        pattern = rf"fn {function}\(.*?match \w+ \{{(.*?)\n +\}}"
        body = re.search(pattern, text(name), re.DOTALL)
        assert body
        found = re.findall(rf"([\w\s|]+?)=> {result}", body[1])
        return {snake(word): value for words, value in found for word in re.findall(r"\w+", words)}

    def snake(word: str) -> str:
        return re.sub(r"(?<!^)([A-Z])", r"_\1", word).lower()

    statuses = arms("core/src/error.rs", "status", r"(\d+)")
    exits = arms("cli/src/failure.rs", "exit_code", r"exit::(\w+)")
    numbers = dict(re.findall(r"const (\w+): u8 = (\d+)", text("cli/src/failure.rs")))
    source, page = text("sdk/python/forebay/errors.py"), text("docs/python/errors.md")
    classes = dict(re.findall(r'^    "(\w+)": (\w+),$', source, re.MULTILINE))
    row = r"^\| ([\d, ]+) \| (.*?) \| `(\w+)` \| (\d+) \|$"
    rows = re.findall(row, page, re.MULTILINE)
    shown = {code: row for row in rows for code in re.findall(r"`(\w+)`", row[1])}
    assert len(statuses) > 25 and shown.keys() == statuses.keys() == exits.keys()
    for code, (status, _, kind, number) in shown.items():
        assert statuses[code] in status.split(", "), code
        assert (kind, number) == (classes.get(code, "ForebayError"), numbers[exits[code]]), code


def test_targets_may_compose_for_a_dataset() -> None:
    assert "cloud.compose=on" in text("docs/clouds.md")
    page = flat("docs/pytorch/map_dataset.md")
    assert "ever composed in the bucket" not in page and "cloud.compose=on" in page


def test_a_writer_holds_one_part_more_than_its_workers() -> None:
    assert "``num_workers + 1`` in memory" in text("sdk/python/forebay/writer.py")
    assert "`num_workers + 1` parts" in flat("docs/python/object.md")


@pytest.mark.parametrize("page", ["docs/pytorch/thread_loader.md", "docs/training.md"])
def test_a_thread_loader_prefetches_for_its_threads_too(page: str) -> None:
    loader = text("pytorch/src/forebay_torch/thread_loader.py")
    assert "self._threads + self._prefetch" in loader
    assert "`threads + prefetch` more are on their way" in flat(page)


def test_the_bounds_of_a_batchs_share_are_those_of_the_code() -> None:
    code = text("target/src/batch/budget.rs")
    clamp = re.search(r"total / \(.*?\.clamp\((\w+), (\w+)\)", code, re.DOTALL)
    assert clamp
    values = dict(re.findall(r"const (\w+): usize = (\d[\d_]*(?: << \d+)?);", code))
    low, high = (bytes_of(values[name]) for name in clamp.groups())
    said = f"A share is between {low >> 10} KiB and {high >> 20} MiB"
    assert said in flat("docs/semantics.md")


def test_every_summed_metric_is_named_and_no_other() -> None:
    code = text("gateway/src/metric_sums.rs")
    families = re.findall(r'\(\s*"(\w+)",\s*"(?:counter|gauge)"', code)
    sentence = re.search(
        r"Eleven families are summed, and no others: (.*?), each behind",
        flat("docs/architecture.md"),
    )
    assert sentence and len(families) == 11
    assert re.findall(r"`(\w+)`", sentence.group(1)) == families


def test_the_unit_file_names_no_flag_that_its_servers_lack() -> None:
    unit = text("deploy/systemd/forebay@.service")
    assert "--folder-root" not in unit
    assert "pub roots" in text("core/src/config.rs") and "`roots` under [folder]" in unit


def test_gateways_and_targets_of_the_chart_and_of_compose_get_the_same_s3_keys() -> None:
    compose = text("deploy/compose.yaml")
    assert compose.count("FOREBAY_S3__KEYS") == 1, "one value, for all nodes"
    gateway = text("deploy/helm/forebay/templates/_gateway.tpl")
    assert "[s3]" not in gateway, "the keys come from one place for both roles"
    assert "there is no login" in flat("docs/s3.md")
