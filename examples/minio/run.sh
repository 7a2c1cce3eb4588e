#!/usr/bin/env bash
# A cluster over a bucket in S3: look into it, read through the cache, train twice.
#
#   examples/minio/run.sh                          with a MinIO and images of its own
#   examples/minio/run.sh s3://my-bucket/train/    with yours, by the credentials of your environment
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
forebay=${FOREBAY_BIN:-$root/build/release/forebay}
python=${PYTHON:-$root/build/venv/bin/python}
source=${1:-s3://images/train/}

. "$root/examples/cluster.sh"

if [ $# = 0 ]; then
    minio=$("$root/ci/minio.sh")
    minio_port=$(free_ports 1)
    # With a single drive a folder is a bucket.
    mkdir -p "$work/minio/images"
    MINIO_ROOT_USER=example MINIO_ROOT_PASSWORD=example-secret MINIO_BROWSER=off MINIO_UPDATE=off \
        "$minio" server "$work/minio" --quiet --address "127.0.0.1:$minio_port" \
        >"$work/minio.log" 2>&1 &
    started+=($!)
    # All that a target needs to know; for Amazon itself, without the URL.
    export AWS_ENDPOINT_URL=http://127.0.0.1:$minio_port AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=example AWS_SECRET_ACCESS_KEY=example-secret
    wait_for "$AWS_ENDPOINT_URL/minio/health/ready"
fi

start_cluster
[ $# != 0 ] || put_images "$source"
show_reads_and_training "$source"
