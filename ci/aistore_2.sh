#!/usr/bin/env bash
# Prints a folder that holds the AIStore SDK 2.0: first in PYTHONPATH, it stands before the one of the
# test environment; see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" aistore-2 aistore==2.0.0 xxhash==4.0.1
