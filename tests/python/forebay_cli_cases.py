"""Command lines for test_cli_schema.py: at least one right and one wrong use of every command.

Words in braces are filled in by the test: `{bucket}` has the object `one.txt`, the folder `dir/` and the
shard `shards/s.tar`; `{backed}` is a bucket with a folder behind it; `{new}` is a name of a folder that
exists, and of nothing else, another one in each run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A command line whose output is checked in all forms."""

    command: str
    arguments: str = ""
    #: A text of the table, or of the message for people.
    shows: str = ""
    #: Command lines to run before it.
    before: tuple[str, ...] = ()
    code: int = 0
    #: Standard input.
    text: str | None = None
    #: Whether it runs as the administrator of a cluster with users and TLS.
    users: bool = False
    #: Cases that go on with what it left, in the same form of output.
    then: tuple[Case, ...] = ()

    def __str__(self) -> str:
        return f"{self.command} {self.arguments}".strip()

    @property
    def steps(self) -> tuple[Case, ...]:
        """This case and those after it."""
        return (self, *self.then)


def of_users(command: str, arguments: str = "", shows: str = "", **more: object) -> Case:
    """A case for the cluster with users."""
    return Case(command, arguments, shows, users=True, **more)  # type: ignore[arg-type]


ROLE = "{new} writer --bucket ais://b"
DISK = "{target} {folder}/{new}"
BENCH = "--time 100ms --jobs 2"

CASES = [
    Case("ls", "", "BACKEND"),
    Case("ls", "{bucket}", "one.txt"),
    Case("ls", "{bucket} --cached", "one.txt"),
    Case("ls", "ht://", ""),
    Case("mb", "ais://{new}", "made", then=(Case("rb", "ais://{new}", "removed"),)),
    Case("bucket ls", "", "HIT"),
    Case("bucket show", "{bucket}", "none: the objects"),
    Case("bucket show", "{backed}", "folder"),
    Case("bucket set", "{backed} pin=true", "pin"),
    Case("bucket reset", "{backed}", "{backed}"),
    Case("put", "one.txt {bucket}/{new}", "put {bucket}/{new}"),
    Case("put", "- {bucket}/{new}", "put {bucket}/{new}", text="from a pipe"),
    Case("put", "-r dir {bucket}/{new}/", "put 2 of 2 files"),
    Case("get", "{bucket}/one.txt {new}/", "got {new}/one.txt"),
    Case("get", "-r {bucket}/dir/ {new}", "got 2 of 2 objects"),
    Case("cp", "{bucket}/one.txt {bucket}/{new}", "copied 1 of 1"),
    Case("cp", "-r {bucket}/dir/ {new} --dry-run", "copy"),
    Case("mv", "{bucket}/{new}/a {bucket}/{new}/b", "moved 1 of 1", before=("put one.txt {bucket}/{new}/a",)),
    Case("sync", "dir {bucket}/{new}", "copied 2 of 2"),
    Case("rm", "{bucket}/{new}", "removed", before=("put one.txt {bucket}/{new}",)),
    Case("rm", "-r {bucket}/{new}/ --yes", "done", before=("put one.txt {bucket}/{new}/a",)),
    Case("rm", "{bucket}/one.txt --dry-run", "one.txt"),
    Case("stat", "{bucket}/one.txt", "checksum"),
    Case("stat", "{backed}", "folder"),
    Case("du", "{bucket}/dir/", "OBJECTS"),
    Case("find", "{bucket} --name '*.txt'", "MODIFIED"),
    Case("presign", "{bucket}/one.txt", "http"),
    Case("prefetch", "{backed}", "job-"),
    Case("prefetch", "{backed} --wait", "done"),
    Case("prefetch", "{backed} --dry-run --price-per-gb 0.09", "egress"),
    Case("evict", "{backed} --wait", "done"),
    Case("write-back", "{bucket}/dir/ {backed}/{new}/ --wait", "done"),
    Case("scrub", "{bucket}", "job-"),
    Case("archive ls", "{bucket}/shards/s.tar", "OFFSET"),
    Case("archive get", "{bucket}/shards/s.tar a {new}/a", "got {new}/a"),
    Case("ishard", "{bucket}/dir/ ais://{new} --create --wait", "done"),
    Case("ishard", "{bucket}/dir/ {bucket} --dry-run", "SAMPLES"),
    Case("dsort", "{bucket}/shards/ {bucket}/{new}/", "srt-"),
    Case("dsort", "{bucket}/shards/ {bucket}/{new}/ --wait", "sorting"),
    Case("dsort", "{bucket}/shards/ {bucket}/{new}/ --dry-run", "RECORDS"),
    Case("job ls", "", "STARTED"),
    Case("job get", "{job}", "scrub"),
    Case("job wait", "{job}", "done"),
    Case("job cancel", "{job}", "cancelled"),
    Case("cluster info", "", "BUDGET"),
    Case("cluster map", "", "ROLE"),
    Case("cluster rebalance", "", "g"),
    Case("cluster rebalance", "--wait", "rebalance"),
    Case("cluster safe-to-stop", "{target}", "one copy of each object", code=6),
    Case("cluster versions", "", "VERSION"),
    Case("cluster backup", "{new}/b", "written", then=(Case("cluster restore", "{new}/b --dry-run", "readable"),)),
    Case(
        "cluster remote attach",
        "{new}={endpoint}",
        "attached",
        then=(Case("cluster remote ls", "", "ALIAS"), Case("cluster remote detach", "{new}", "detached")),
    ),
    Case("node get", "{target}", "version"),
    Case("node get", "{gateway}", "gateway"),
    Case("node drain", "{target}", "objects move", then=(Case("node uncordon", "{target}", "objects move"),)),
    Case("node remove", "{target}", "objects move", then=(Case("node uncordon", "{target}", "objects move"),)),
    of_users("node join-token create", "", "-", then=(of_users("node join-token list", "", "EXPIRES"),)),
    of_users("node join-token remove", "{join_token}"),
    Case("top", "", "{target}"),
    Case("trace ls", "", "OPERATION"),
    Case("trace show", "{request}", "spans"),
    Case("disk ls", "", "FREE"),
    Case("disk ls", "{target}", "{target}"),
    Case(
        "disk attach",
        f"{DISK} --size 64MiB",
        "attached",
        then=(
            Case("disk disable", DISK, "disabled"),
            Case("disk enable", DISK, "enabled"),
            Case("disk detach", DISK, "detached"),
        ),
    ),
    of_users("tls show", "", "trusted"),
    Case("config show", "--config target.toml --origin", "ORIGIN"),
    Case("config validate", "target.toml", "is valid"),
    Case("config validate", "wrong.toml", "cache.high", code=2),
    Case("config diff", "target.toml", "DEFAULT"),
    Case("config diff", "target.toml other.toml", "SECOND"),
    Case("config set", "cache.high 85 --config target.toml --dry-run", "restart"),
    Case("config unset", "log.level --config target.toml --dry-run", "the default"),
    Case("config profiles", "", "PROFILE"),
    of_users(
        "auth login", "root --password-file {password}", "logged in as root", then=(of_users("auth logout", "", "logged out"),)
    ),
    of_users("auth whoami", "", "RIGHTS"),
    of_users("auth can-i", "get-object ais://b", "yes"),
    of_users(
        "auth user add",
        "{new} --role reader",
        then=(
            of_users("auth user show", "{new}", "reader"),
            of_users("auth user set", "{new} --role writer"),
            of_users("auth user list", "", "BINDINGS"),
            of_users("auth token revoke", "--user {new}"),
            of_users("auth user remove", "{new} --yes"),
        ),
    ),
    of_users(
        "auth role add",
        "{new} --right get-object",
        then=(
            of_users("auth role show", "{new}", "get-object"),
            of_users("auth role bind", ROLE),
            of_users("auth role unbind", ROLE),
            of_users("auth role list", "", "DESCRIPTION"),
            of_users("auth role remove", "{new} --yes"),
        ),
    ),
    of_users("auth key create", "--user writer", "secret key"),
    of_users("auth key list", "", "ACCESS"),
    of_users("auth key remove", "{key} --yes"),
    of_users("auth token create", "--user writer", "."),
    Case("doctor", "", "endpoint"),
    Case("doctor", "{backed}", "TARGETS"),
    Case("ready", "", "ready"),
    Case("support-bundle", "{new}/bundle.tar.gz", "files"),
    Case("bench put", f"{{bucket}}/{{new}}/ --size 1KiB --objects 4 {BENCH}", "latency"),
    Case("bench get", f"{{bucket}}/dir/ {BENCH}", "first byte"),
    Case("bench batch", f"{{bucket}}/dir/ --batch 2 {BENCH}", "objects"),
    Case("bench shard", f"{{bucket}}/shards/ {BENCH}", "requests"),
    Case("bench compare", "result.json result.json", "RATIO"),
    Case("why", "", "LARGEST CAUSE"),
    Case("why", "{feed}", "waiting"),
    Case("why", "{request}", "spans in"),
    Case("help", "-k cache", "PURPOSE"),
    Case("version", "", "platform"),
]

#: Arguments that a command refuses, and the word that its message names.
WRONG = {
    "ls": ("nope", "nope"),
    "mb": ("zz://b", "zz"),
    "rb": ("ais://b/object", "ais://b/object"),
    "bucket ls": ("zz://", "zz"),
    "bucket show": ("ais://b/object", "ais://b/object"),
    "bucket set": ("ais://b colour=red", "colour"),
    "bucket reset": ("ais://b/object", "ais://b/object"),
    "put": ("one.txt nowhere", "nowhere"),
    "get": ("ais://b", "ais://b"),
    "cat": ("ais://b", "ais://b"),
    "cp": ("one.txt ais://b --jobs 0", "0"),
    "mv": ("one.txt ais://b --jobs many", "many"),
    "sync": ("dir zz://b", "zz"),
    "rm": ("ais://b", "ais://b"),
    "stat": ("zz://b", "zz"),
    "du": ("nope", "nope"),
    "find": ("ais://b --larger huge", "huge"),
    "presign": ("ais://b", "ais://b"),
    "prefetch": ("zz://b", "zz"),
    "evict": ("nope", "nope"),
    "write-back": ("ais://b zz://c", "zz"),
    "scrub": ("nope", "nope"),
    "archive ls": ("ais://b", "ais://b"),
    "archive get": ("ais://b/s.tar", "MEMBER"),
    "ishard": ("ais://b ais://c --size many", "many"),
    "dsort": ("ais://b ais://c --sort up", "up"),
    "job ls": ("extra", "extra"),
    "job get": ("", "ID"),
    "job wait": ("one two", "two"),
    "job cancel": ("", "ID"),
    "cluster info": ("--watch=0", "0"),
    "cluster map": ("extra", "extra"),
    "cluster rebalance": ("--later", "--later"),
    "cluster safe-to-stop": ("no/node", "no/node"),
    "cluster versions": ("extra", "extra"),
    "cluster backup": ("", "FILE"),
    "cluster restore": ("backup", "--config"),
    "cluster remote attach": ("far", "far"),
    "cluster remote detach": ("far away", "away"),
    "cluster remote ls": ("extra", "extra"),
    "node drain": ("{target} --wait-timeout 10m", "--wait"),
    "node uncordon": ("no/node", "no/node"),
    "node remove": ("{target} --lost --wait", "--wait"),
    "node get": ("no/node", "no/node"),
    "node logs": ("{target} --level loud", "loud"),
    "node join-token create": ("--ttl soon", "soon"),
    "node join-token list": ("extra", "extra"),
    "node join-token remove": ("", "ID"),
    "top": ("--interval 0", "0"),
    "trace": ("--min-ms long", "long"),
    "trace ls": ("--why late", "late"),
    "trace show": ("xyz", "xyz"),
    "disk ls": ("{gateway}", "{gateway}"),
    "disk attach": ("{target} /d --size huge", "huge"),
    "disk detach": ("{target}", "PATH"),
    "disk disable": ("{target} /d --force", "/d"),
    "disk enable": ("{target}", "PATH"),
    "tls show": ("extra", "extra"),
    "config show": ("--config wrong.toml", "cache.high"),
    "config validate": ("", "FILE"),
    "config diff": ("wrong.toml", "cache.high"),
    "config set": ("cache.hihg 85 --config target.toml", "hihg"),
    "config unset": ("level --config target.toml", "level"),
    "config profiles": ("extra", "extra"),
    "auth login": ("root --password-file {password} --ttl soon", "soon"),
    "auth logout": ("extra", "extra"),
    "auth whoami": ("extra", "extra"),
    "auth can-i": ("fly", "fly"),
    "auth user add": ("ann bob", "bob"),
    "auth user set": ("", "USER"),
    "auth user list": ("extra", "extra"),
    "auth user show": ("", "USER"),
    "auth user remove": ("ann", "ann"),
    "auth role add": ("role", "--right"),
    "auth role list": ("extra", "extra"),
    "auth role show": ("", "ROLE"),
    "auth role bind": ("role ann", "--bucket"),
    "auth role unbind": ("role ann", "--bucket"),
    "auth role remove": ("role", "role"),
    "auth key create": ("extra", "extra"),
    "auth key list": ("extra", "extra"),
    "auth key remove": ("FB0", "FB0"),
    "auth token create": ("--ttl soon", "soon"),
    "auth token revoke": ("", "FILE"),
    "doctor": ("nope", "nope"),
    "ready": ("one two", "two"),
    "support-bundle": ("one two", "two"),
    "bench put": ("ais://b --size 2GiB", "2GiB"),
    "bench get": ("ais://b --time 0s", "0s"),
    "bench batch": ("ais://b --batch 0", "0"),
    "bench shard": ("ais://b --jobs 0", "0"),
    "bench compare": ("one.txt result.json", "one.txt"),
    "why": ("one two", "two"),
    "help": ("nope", "nope"),
    "schema": ("--all", "--all"),
    "version": ("extra", "extra"),
    "serve": ("--size huge", "huge"),
    "dev": ("--targets many", "many"),
    "gateway": ("--confg file", "--confg"),
    "target": ("extra", "extra"),
    "completion": ("fish", "fish"),
}
