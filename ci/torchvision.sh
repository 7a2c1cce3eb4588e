#!/usr/bin/env bash
# Prints a folder that holds torchvision (23 MB), for the tests of tests/seeds; see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" torchvision torchvision==0.29.2
