# Shared parts of the examples over a cloud; they set root, forebay and python, and source this file.

work=$(mktemp -d)
started=()
stop_all() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap stop_all EXIT

run() {
    local shown=${*//"$forebay"/forebay}
    shown=${shown//"$python"/python}
    printf '\n$ %s\n' "${shown//"$root/"/}"
    "$@"
}

free_ports() {
    PYTHONPATH=$root/examples "$python" -c "import demo; print(demo.free_ports($1))"
}

# Waits until a URL answers.
wait_for() {
    "$python" - "$1" <<'PY'
import sys, time, urllib.request
for _ in range(300):
    try:
        urllib.request.urlopen(sys.argv[1], timeout=1)
        sys.exit()
    except OSError:
        time.sleep(0.1)
sys.exit(f"no answer from {sys.argv[1]}")
PY
}

start_cluster() {
    local port
    port=$(free_ports 4)
    "$forebay" dev --dir "$work/cluster" --targets 3 --port "$port" >"$work/cluster.log" 2>&1 &
    started+=($!)
    export FOREBAY_ENDPOINT=http://127.0.0.1:$port
    wait_for "$FOREBAY_ENDPOINT/readyz"
    for _ in $(seq 300); do
        [ -e "$work/cluster/dev.json" ] && return
        sleep 0.1
    done
    cat "$work/cluster.log"
    return 1
}

# Images of shapes, written through the cluster; then the copies go, so that reading begins cold.
put_images() {
    PYTHONPATH=$root/examples "$python" -c "import make_images, pathlib, sys
make_images.write(pathlib.Path(sys.argv[1]), 120)" "$work/images"
    run "$forebay" put -r "$work/images" "${1%/}"
    run "$forebay" evict "$1" --wait
}

# How many objects the targets have read from the cloud.
cloud_reads() {
    "$python" - "$FOREBAY_ENDPOINT/metrics" <<'PY'
import sys, urllib.request
lines = urllib.request.urlopen(sys.argv[1]).read().decode().splitlines()
lines = [l for l in lines if l.startswith("forebay_cluster_backend_requests_total{") and 'op="get"' in l]
print("objects read from the cloud so far:", int(sum(float(l.rsplit(" ", 1)[1]) for l in lines)))
PY
}

show_reads_and_training() {
    run "$forebay" ls "$1"
    for _ in cold warm; do
        run "$python" "$root/examples/train_images.py" "$1" --state "$work/model.pt"
        cloud_reads
    done
    run "$forebay" doctor
}
