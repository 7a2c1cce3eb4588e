"""Measures Forebay beside its peers: one command, one JSON, one table.

    python -m compare --bin build/dist/forebay [--quick] [--only SECTION] [--resume]
    python -m compare agree RUN1.json RUN2.json
    python -m compare pages RUN.json [ROOT]
    python -m compare list

Run it by `make compare`. Progress goes to standard error, the table to standard output.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from compare import pages, programs, results
from compare.runner import Failed, Run
from compare.sections import all_sections
from compare.table import text_table
from feeding import environment


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=Path("build/dist/forebay"))
    parser.add_argument("--load", help="the forebay-load binary; otherwise the one beside --bin")
    parser.add_argument("--aisnode", help="an aisnode binary; otherwise ci/aistore.sh builds one")
    parser.add_argument("--minio", help="a minio binary; otherwise ci/minio.sh has one")
    parser.add_argument("--fake-gcs", help="a fake-gcs-server; otherwise ci/fake_gcs.sh has one")
    parser.add_argument("--out", type=Path, default=Path("build/compare"))
    parser.add_argument("--only", action="append", default=[], help="a section; may be repeated")
    parser.add_argument("--rounds", type=int, help="of each contender: 3, with --quick 1")
    parser.add_argument("--seconds", type=float, help="of a round: 0.7, with --quick 0.15")
    parser.add_argument("--quick", action="store_true", help="a try of minutes: little data, one round")
    parser.add_argument("--resume", action="store_true",
                        help="keep the sections that results.json has of a run with these parameters")
    return parser.parse_args()  # fmt: skip


def prepared(given: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """The run, and the document that it continues or begins."""
    program = given.bin.absolute()
    if not program.is_file():
        sys.exit(f"error: {given.bin} is not there: make shipped builds it, or name one by --bin")
    load = given.load or str(program.with_name("forebay-load"))
    named = {"forebay": str(program), "aisnode": given.aisnode, "minio": given.minio}
    named |= {"fake-gcs": given.fake_gcs, "load": load if Path(load).is_file() else None}
    found, missing = programs.find(named)
    run = Run(found, missing, given.out.absolute(), given.quick)
    run.rounds = given.rounds or (1 if given.quick else 3)
    run.seconds = given.seconds or (0.15 if given.quick else 0.7)
    parameters = {"quick": run.quick, "rounds": run.rounds, "seconds": run.seconds}
    document = results.new(parameters, program, programs.versions(found), missing)
    path = given.out / "results.json"
    if given.resume and path.exists():
        before = results.load(path)
        changed = [key for key in ("parameters", "profile", "machine", "versions")
                   if before[key] != results.rounded(document[key])]  # fmt: skip
        if changed:
            sys.exit(f"error: --resume: {path} is of another run ({', '.join(changed)} differ)")
        document = before
    return run, document


def measure(given: argparse.Namespace) -> int:
    sections = all_sections()
    unknown = set(given.only) - {section.name for section in sections}
    if unknown:
        names = ", ".join(section.name for section in sections)
        sys.exit(f"error: no section {', '.join(sorted(unknown))}; there are {names}")
    run, document = prepared(given)
    for peer, reason in run.missing.items():
        print(f"not measured: {peer}: {reason}", file=sys.stderr)
    run.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for section in sections:
        if given.only and section.name not in given.only:
            continue
        if given.resume and section.name in document["sections"]:
            print(f"{section.name}: kept from the run before", file=sys.stderr)
            continue
        print(f"\n{section.name}: {section.title}", file=sys.stderr, flush=True)
        began, cpu = time.monotonic(), cpu_s()
        try:
            rows = [measured.as_json() for measured in section.measure(run)]
        except Failed as error:
            print(f"error: {section.name}: {error}", file=sys.stderr)
            failed.append(section.name)
            continue
        took = round(time.monotonic() - began)
        spent = round(cpu_s() - cpu)
        named = {"title": section.title, "took_s": took, "cpu_s": spent, "rows": rows}
        document["sections"][section.name] = named
        results.save(run.out / "results.json", document)
        print(f"{section.name}: {len(rows)} rows in {took} s, {spent} s of CPU", file=sys.stderr, flush=True)
    print(text_table(results.rounded(document)))
    print(f"written: {given.out / 'results.json'}", file=sys.stderr)
    if failed:
        print(f"error: not measured: {', '.join(failed)}; --resume tries them again", file=sys.stderr)
    return 1 if failed else 0


def cpu_s() -> float:
    """CPU seconds of this process and of its descendants that ended."""
    return sum(os.times()[:4])


def agree(first: str, second: str) -> int:
    """Prints the rows in which two runs contradict each other about who is ahead, and those that are level.

    The exit code is 1 if rows contradict each other.
    """
    try:
        runs = results.load(Path(first)), results.load(Path(second))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if level := results.undecided(*runs):
        print("level in one run or both, which shows nobody ahead:", *level, sep="\n  ")
    lines = results.disagreements(*runs)
    agreed = f"the runs agree about who is ahead in every {'other ' if level else ''}row"
    print("\n".join(lines) or agreed)
    return 1 if lines else 0


def write_pages(run: str, root: Path) -> int:
    """Writes the pages of a run below a folder, by default `pages` beside the run."""
    try:
        written = pages.write(root, results.load(Path(run)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(f"written: {path}" for path in written))
    return 0


def main() -> int:
    if sys.argv[1:2] == ["pages"] and len(sys.argv) in (3, 4):
        environment.enter(["-m", "compare"])
        run = Path(sys.argv[2])
        return write_pages(sys.argv[2], Path(sys.argv[3]) if sys.argv[3:] else run.parent / "pages")
    if sys.argv[1:2] == ["agree"]:
        if len(sys.argv) != 4:
            print("usage: python -m compare agree RUN1.json RUN2.json", file=sys.stderr)
            return 2
        return agree(*sys.argv[2:])
    if sys.argv[1:] == ["list"]:
        for section in all_sections():
            print(f"{section.name}: {section.title}, about {section.minutes:g} minutes")
            for row in section.rows:
                print(f"  {row.id:<32} {row.title}")
        return 0
    given = options()
    environment.enter(["-m", "compare"])
    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return measure(given)


if __name__ == "__main__":
    sys.exit(main())
