#!/usr/bin/env bash
# Prints the path of Chromium, the browser that shows the console in tests: the one in FOREBAY_CHROMIUM, one
# on PATH, the one unpacked before, or else the one of Debian's package `chromium-headless-shell`, which is
# downloaded with the libraries that the machine lacks and unpacked without being installed (a minute, no
# root). Exit code 2: FOREBAY_CHROMIUM is no program; 3: there is none and no apt-get to get it with.
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
set -euo pipefail
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
tree=$cache/chromium
built=$tree/chromium

say() { printf 'chromium: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_CHROMIUM:-}" ]; then
    if [ ! -f "$FOREBAY_CHROMIUM" ] || [ ! -x "$FOREBAY_CHROMIUM" ]; then
        say "FOREBAY_CHROMIUM=$FOREBAY_CHROMIUM is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_CHROMIUM"
elif command -v chromium || command -v chromium-headless-shell || command -v google-chrome; then
    :
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
    say "Chromium not found, and apt-get is missing: set FOREBAY_CHROMIUM to one"
    exit 3
else
    say "unpacking it once, into $tree"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.chromium-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/tree"
    # Lists of packages in a folder of our own: the machine may have none, and only root may update its own.
    # No sandbox: its user cannot write to the cache folder.
    own=(-qq -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o APT::Sandbox::User=)
    wanted=(chromium-headless-shell chromium-common fonts-dejavu-core)
    (
        cd "$work"
        apt-get "${own[@]}" update
        # The browser, which finds its files beside itself, and the packages that its installation would add
        # to this machine.
        mapfile -t added < <(apt-get "${own[@]}" -s --no-install-recommends install "${wanted[@]}" |
            sed -n 's/^Inst \([^ ]*\).*/\1/p')
        apt-get "${own[@]}" download "${wanted[@]}" ${added[@]+"${added[@]}"}
    ) >&2
    for package in "$work"/*.deb; do
        dpkg-deb --extract "$package" "$work/tree"
    done
    libraries=$(find "$work/tree" -name '*.so*' -printf '%h\n' | sort -u | sed "s|^$work/tree|\$tree|" | paste -sd:)
    cat >"$work/tree/chromium" <<WRAPPER
#!/usr/bin/env bash
tree=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH=$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_FILE=\$tree/fonts.conf
exec "\$tree/usr/lib/chromium/chromium-headless-shell" "\$@"
WRAPPER
    cat >"$work/tree/fonts.conf" <<FONTS
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
FONTS
    chmod +x "$work/tree/chromium"
    "$work/tree/chromium" --version >&2
    rm -rf "$tree"
    # A rename within one folder: an interrupted download never leaves half of it under the name.
    mv "$work/tree" "$tree"
    printf '%s\n' "$built"
fi
