#!/usr/bin/env bash
# Prints a folder that holds pandas, Dask, Hugging Face datasets and those of their needs that the test
# environment does not have (120 MB), for the examples of examples/tables; see package_folder.sh. Ray,
# which one example is for, is left out: it is 250 MB.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" tables \
    pandas==3.1.1 dask==2026.8.0 partd==1.4.2 toolz==1.2.0 locket==1.0.0 datasets==5.2.0 \
    dill==0.4.1 multiprocess==0.70.19 huggingface_hub==2.4.0 hf_xet==1.8.0 httpx2==2.16.2 \
    httpcore2==2.16.2 anyio==4.16.0 h11==0.16.0 click==8.5.1 tqdm==4.70.1 \
    importlib_metadata==10.2.0 zipp==4.1.2 truststore==0.10.5 lazy-importer==0.1.0
