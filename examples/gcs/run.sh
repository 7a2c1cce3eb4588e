#!/usr/bin/env bash
# A cluster over a bucket of Google Cloud Storage: look into it, read through the cache, train twice.
#
#   examples/gcs/run.sh                          with an emulator and images of its own
#   examples/gcs/run.sh gs://my-bucket/train/    with yours, by the credentials of your environment
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
forebay=${FOREBAY_BIN:-$root/build/release/forebay}
python=${PYTHON:-$root/build/venv/bin/python}
source=${1:-gs://images/train/}

. "$root/examples/cluster.sh"

if [ $# = 0 ]; then
    fake_gcs=$("$root/ci/fake_gcs.sh")
    emulator_port=$(free_ports 1)
    "$fake_gcs" -backend memory -scheme http -host 127.0.0.1 -port "$emulator_port" \
        >"$work/emulator.log" 2>&1 &
    started+=($!)
    # All that a target needs to know of an emulator; for Google itself it is
    # GOOGLE_APPLICATION_CREDENTIALS, or a machine with a service account.
    export STORAGE_EMULATOR_HOST=http://127.0.0.1:$emulator_port
    wait_for "$STORAGE_EMULATOR_HOST/_internal/healthcheck"
    "$python" -c "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1] + '/storage/v1/b', b'{\"name\":\"images\"}', {'content-type': 'application/json'}))" "$STORAGE_EMULATOR_HOST"
fi

start_cluster
[ $# != 0 ] || put_images "$source"
show_reads_and_training "$source"
