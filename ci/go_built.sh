# Sourced by scripts that print the path of a program which is built with Go once and kept.
#
# provide NAME VARIABLE BUILT [PROGRAM]
#     Prints the path that VARIABLE holds, or BUILT if it was built before, or builds it: the caller's
#     function `build WORK OUT` makes OUT with the help of the empty folder WORK. Where BUILT is a
#     folder, PROGRAM is the program in it. Exit code 2: what VARIABLE names is no program; 3: nothing
#     is built and Go is missing.
# installed MODULE@VERSION WORK OUT
#     The body of a `build` for a module that is one program.
# aistore_source WORK
#     Prints the folder of AIStore's source, which is read-only.
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}

installed() {
    CGO_ENABLED=0 GOBIN=$2 go install -trimpath -ldflags='-s -w' "$1"
    mv "$2"/* "$3"
}

# The 5.0 line.
aistore_version=v1.5.0
aistore_source() {
    (cd "$1" && GOFLAGS=-mod=mod go mod download -json "github.com/NVIDIA/aistore@$aistore_version") |
        sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

provide() {
    local name=$1 variable=$2 built=$3 program=${4:+/$4}
    local given=${!variable:-}
    say() { printf '%s: %s\n' "$name" "$*" >&2; }
    if [ -n "$given" ]; then
        if [ ! -f "$given$program" ] || [ ! -x "$given$program" ]; then
            say "$variable: $given$program is not an executable file"
            exit 2
        fi
        printf '%s\n' "$given"
        return
    fi
    if [ ! -x "$built$program" ]; then
        if ! command -v go >/dev/null; then
            say "it is not built yet and Go is missing"
            exit 3
        fi
        say "building it once, into $built"
        mkdir -p "$(dirname "$built")"
        work=$(mktemp -d "$(dirname "$built")/.$name-XXXXXX")
        trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
        mkdir "$work/work"
        build "$work/work" "$work/out" >&2
        rm -rf "$built"
        # A rename within one folder: an interrupted build never leaves half of it under the name.
        mv "$work/out" "$built"
    fi
    printf '%s\n' "$built"
}
