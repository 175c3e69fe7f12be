#!/usr/bin/env bash
# What a GPU machine without a network does in its half hour. PARTS holds code.tar.gz, carry.py, wheels/, data/ and key.
#   machine.sh setup PARTS                         unpack the code, install what the image lacks
#   machine.sh arrive FOLDER                       keep pieces that arrived; with the last one the store is unpacked
#   FIRST=1 GPU=H200 machine.sh start ACCOUNT LABEL MINUTES [KEY=VALUE...]   register, prepare, train in the background
#                                                  (FIRST=1: the run begins here; else a store must have arrived)
#   machine.sh watch SECONDS [TEXT]                look on, until a line of the log matches TEXT
#   machine.sh stop                                ask the session to commit and end; wait for it
#   machine.sh pack [HAVE] [--head]                pieces of what must go home
#   machine.sh piece FOLDER FROM TO                copy some of them
#   machine.sh relay WORDS...                      any command of the product
set -euo pipefail
work=${WORK:-/tmp/half_hour}
mkdir -p "$work"/{logs,arrived}
python=${PYTHON:-python3}
export PYTHONPATH=$work/site RELAY_STORE=file://$work/store RELAY_EPHEMERAL=1 RELAY_CACHE=1 PYTHONUNBUFFERED=1
export CODE=$work/code RUN_NAME=${RUN_NAME:-sudoku_50k} COLUMNS=140
[ -f "$work/key" ] && RELAY_CACHE_KEY=$(cat "$work/key") && export RELAY_CACHE_KEY
task=${TASK:-"task=sudoku data.train=$work/data/train_1500.csv data.test=$work/data/test_visible.csv"}
relay() { (cd "$work/code" && "$python" rotate_accounts.py "$@"); }
say() { echo "[$(date -u +%T)] $*"; }
verb=$1; shift
case $verb in
setup)
    mkdir -p "$work/code"
    tar xf "$1/code.tar.gz" -C "$work/code"
    cp -r "$1/data" "$1/key" "$1/carry.py" "$work/"
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/site" "$1"/wheels/*.whl
    say set up ;;
arrive)
    cp "$1"/* "$work/arrived/"
    n=$(ls "$work/arrived" | grep -c '^[0-9]*$') all=$(grep -c '": "' "$work/arrived/digests.json" || true)
    say "$n of $all pieces"
    if [ "$n" = "$all" ]; then "$python" "$work/carry.py" unpack "$work/arrived" "$work/store"; fi ;;
start)
    account=$1 label=$2 minutes=$3; shift 3
    [ -d "$work/store/runs" ] || [ -n "${FIRST:-}" ] || { say "no store has arrived; FIRST=1 begins the run"; exit 1; }
    relay register "$account" "$label" ${GPU:+--gpu "$GPU"}
    relay prepare $task
    rm -f "$work/logs/$account.exit"
    setsid bash -c 'cd "$CODE"; log=$1; shift
        "$@" >"$log.json" 2>"$log.log" </dev/null; echo $? >"$log.exit"' session "$work/logs/$account" \
        "$python" rotate_accounts.py run --account "$account" ${FIRST:+--new} --json --budget-minutes "$minutes" --progress-seconds 15 \
        $task "$@" >/dev/null 2>&1 &
    echo "$account" >"$work/account"
    say started ;;
watch)
    log=$work/logs/$(cat "$work/account").log; end=$((SECONDS + $1)); text=${2:-}
    while [ $SECONDS -lt $end ] && [ ! -f "${log%.log}.exit" ]; do
        if [ -n "$text" ] && grep -qE "$text" "$log" 2>/dev/null; then break; fi
        sleep 1
    done
    say "exit: $(cat "${log%.log}.exit" 2>/dev/null || echo trains)"; tail -n "${LINES:-25}" "$log" ;;
stop)
    log=$work/logs/$(cat "$work/account")
    relay stop || true
    while [ ! -f "$log.exit" ]; do sleep 1; done
    say "exit: $(cat "$log.exit")"; tail -n 15 "$log.log" ;;
pack)
    flags=(); for word in "$@"; do [ "$word" = --head ] && flags+=("$word") || flags+=(--have "$word"); done
    "$python" "$work/carry.py" pack "$work/store" "$work/pieces" --mib 15.9 "${flags[@]}"
    tar czf "$work/pieces/logs.tar.gz" -C "$work" logs ;;
piece)
    mkdir -p "$1"; cp "$work/pieces"/{digests.json,logs.tar.gz} "$1/"
    for i in $(seq "$2" "$3"); do f=$(printf %04d "$i"); [ -f "$work/pieces/$f" ] && cp "$work/pieces/$f" "$1/"; done
    ls "$1" ;;
relay) relay "$@" ;;
*) echo "what is $verb?"; exit 2 ;;
esac
