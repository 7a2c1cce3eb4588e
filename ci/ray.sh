#!/usr/bin/env bash
# Prints a folder that holds Ray and those of its needs that the test environment does not have (330 MB);
# see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" ray \
    ray==2.60.0 click==8.5.1 msgpack==1.2.4 protobuf==7.36.2 pandas==3.1.1
