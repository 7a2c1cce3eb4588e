#!/usr/bin/env bash
# Prints a folder that holds Lhotse and those of its needs that the test environment does not have
# (a few MB); see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" lhotse \
    lhotse==1.33.0 audioread==3.1.0 soundfile==0.13.1 cffi==2.0.0 pycparser==2.23 \
    click==8.3.0 cytoolz==1.1.0 toolz==1.1.0 intervaltree==3.1.0 tabulate==0.9.0 tqdm==4.67.1
