#!/usr/bin/env bash
# Prints a folder that holds LitData and those of its needs that the test environment does not have (45 MB);
# see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" litdata \
    litdata==0.2.76 lightning-utilities==0.15.3 obstore==0.12.1 tifffile==2026.3.3 torchvision==0.29.2
