# Sourced by what builds with the profile `dist`: the environment in which the same commit gives the
# same bits, wherever the checkout and cargo's home are. Sets `root` and `version`, too.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/build}
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$root/$CARGO_TARGET_DIR ;; esac

# For C compilers and for wheels. A constant: the C code of crates is compiled anew when it changes.
export SOURCE_DATE_EPOCH=315532800 # 1980, before which no zip archive can be dated
# For what names a time itself: the image and the bill of materials.
RELEASE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo $SOURCE_DATE_EPOCH)
export RELEASE_EPOCH

# Messages of panics name source files. If several prefixes match, rustc applies the last one.
_cargo_home=${CARGO_HOME:-$HOME/.cargo}
_remap="--remap-path-prefix=$_cargo_home=/cargo --remap-path-prefix=$root=/forebay"
_remap+=" --remap-path-prefix=$CARGO_TARGET_DIR=/build"
case " ${RUSTFLAGS:-} " in *" $_remap "*) ;; *) export RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }$_remap" ;; esac
# The same for C, which the crates of TLS, of compression and of the allocator compile.
_map="-ffile-prefix-map=$_cargo_home=/cargo -ffile-prefix-map=$root=/forebay"
_map+=" -ffile-prefix-map=$CARGO_TARGET_DIR=/build"
case " ${CFLAGS:-} " in *" $_map "*) ;; *) export CFLAGS="${CFLAGS:+$CFLAGS }$_map" ;; esac
unset _cargo_home _remap _map
