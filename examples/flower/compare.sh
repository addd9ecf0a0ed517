#!/usr/bin/env bash
# Three sites and a server, once over Flower and once by files: both give the same model.
# usage: compare.sh FOLDER, a new one; python and flwr of an environment with synthfair[sign] and
# flwr[simulation] come first in the PATH.
set -euo pipefail
app=$(realpath "$(dirname "$0")")
folder=$(realpath -m "$1")

# BLAS adds in another order with another number of threads.
export OMP_NUM_THREADS=1
# No message about this run goes to Flower or Ray, and Flower installs nothing.
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 RAY_USAGE_STATS_ENABLED=0
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_HOME=$folder/flower

# The parties' tables, keys and settings.
python -m synthfair split loanapp --clients 3 --output "$folder"
python "$app/synthfair_flower.py" "$folder"

# Over Flower. `flwr run` would start this server itself, and leave it running.
port=$(python -c "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])")
export FLWR_LOCAL_SUPERLINK_HTTP_API_PORT=$port
flower-superlink --insecure --simulation --port "$port" >"$folder/superlink.log" 2>&1 &
superlink=$!
trap 'kill "$superlink"; wait "$superlink" || true' EXIT
until python -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null; do
    kill -0 "$superlink" # it has not ended
    sleep 1
done
run() {
    flwr run "$app" --stream --run-config "federation='$folder'" \
        --federation-config "num-supernodes=3 client-resources-num-cpus=1"
}
run
models=("$folder"/server/*/model.json)

# By files. Each site has a second ledger, as a table gives one such release.
for site in client_0 client_1 client_2; do
    python -m synthfair.client --data "$folder/${site}_train.csv" --schema "$folder/schema.json" \
        --release surrogate --without-epsilon --sign "$folder/$site/local/$site.key" \
        --ledger "$folder/files/$site.jsonl" --output "$folder/files/$site.parquet"
done
python -m synthfair.server "$folder"/files/*.parquet --schema "$folder/schema.json" \
    --test "$folder"/*_test.csv --keys "$folder/server/local/keys" --max-gap 0.05 \
    --output "$folder/files/server"
for file in model.json metrics.json; do
    cmp "$(dirname "${models[0]}")/$file" "$folder/files/server/$file"
done

# The same question again: the limits of the sites refuse it, and no second model is made.
run >"$folder/again.log" 2>&1
[ "$(grep -l '"code": "releases"' "$folder"/server/*/federation.json | wc -l)" -eq 1 ]
models=("$folder"/server/*/model.json)
[ "${#models[@]}" -eq 1 ]
echo "Flower and files give the same model.json and metrics.json; a second run is refused."
