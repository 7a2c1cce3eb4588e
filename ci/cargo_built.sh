# Sourced by scripts that print the path of a program which cargo builds from crates.io once and keeps.
#
# provide NAME VERSION VARIABLE [ARGUMENT...]
#     Prints the path that VARIABLE holds, or of NAME on PATH, or of the one built before, or builds it
#     (minutes), with these arguments for `cargo install`. Exit code 2: what VARIABLE names is no program; 3:
#     nothing is built and cargo is missing.
provide() {
    local name=$1 version=$2 variable=$3 found
    local given=${!variable:-} built=${FOREBAY_CACHE:-$HOME/.cache/forebay}/bin/$name-$version
    shift 3
    say() { printf '%s: %s\n' "$name" "$*" >&2; }
    if [ -n "$given" ]; then
        [ -f "$given" ] && [ -x "$given" ] || {
            say "$variable: $given is not an executable file"
            exit 2
        }
        printf '%s\n' "$given"
        return
    fi
    if found=$(command -v "$name"); then
        printf '%s\n' "$found"
        return
    fi
    if [ ! -x "$built" ]; then
        command -v cargo >/dev/null || { say "it is not built yet and cargo is missing"; exit 3; }
        say "building it once, into $built"
        mkdir -p "$(dirname "$built")"
        work=$(mktemp -d "$(dirname "$built")/.$name-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        # From a folder that has no settings of cargo.
        (cd "$work" && CARGO_TARGET_DIR=$work/target nice cargo install "$name" --version "$version" --locked \
            "$@" --root "$work") >&2
        mv "$work/bin/$name" "$built"
    fi
    printf '%s\n' "$built"
}
