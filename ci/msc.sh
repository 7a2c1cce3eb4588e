#!/usr/bin/env bash
# Prints a folder that holds NVIDIA's Multi-Storage Client and those of its needs that the test
# environment does not have (42 MB); see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" msc \
    multi-storage-client==1.3.1 opentelemetry-api==1.45.2 xattr==1.3.0 wcmatch==10.2.1 bracex==3.2.3 \
    tqdm==4.70.1 lark==1.3.1 prettytable==3.18.0 wcwidth==0.9.4 psutil==7.2.2 pyroute2==0.9.7 \
    tzdata==2025.3 cffi==2.1.1 pycparser==3.12
