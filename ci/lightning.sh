#!/usr/bin/env bash
# Prints a folder that holds Lightning, safetensors and those of their needs that the test
# environment does not have (some 30 MB); see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" lightning \
    lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 \
    tqdm==4.67.1 safetensors==0.8.0
