#!/bin/sh
# Runs the bench of a hand-off, from its folder:
#
#   sh sv/bench.sh icarus      arrays against images, constants and taps, in Icarus Verilog
#   sh sv/bench.sh verilator   the same in Verilator
#   sh sv/bench.sh random      drawn inputs against the golden model, in Verilator: VECTORS, SEED, FAULT
#   sh sv/bench.sh cocotb      an array by itself, in cocotb and Icarus Verilog, with the sums of directed/
#   sh sv/bench.sh mutants     every fault of sv/faults.txt in both: each must be found at its tap
#   sh sv/bench.sh tested      the sources under test
#
# Each kind of layers has arrays with widths of their own, sv/kindN; the last lines are the totals of all kinds.
# A gallery in a content-addressable memory is a kind of its own, sv/cam; CAM has the sources of its array.
# MACRO has the sources of the array, in one word, ADAPTER the source with module cim_adapter. The adapter
# of the reference array takes LATENCY and MULTIPLEXED; TIMEOUT, in clocks, and TIMEOUT_SECONDS are for all.
set -eu
export LC_ALL=C
reference="sv/cim_array.sv sv/cim_column.sv"
macro=${MACRO-$reference}
adapter=${ADAPTER-sv/cim_adapter.sv}
cam=${CAM-sv/cim_cam.sv}
# The sources of the array with the faults of sv/faults.txt; one's own has none of them.
faulty="$adapter $macro" own=yes
[ "$macro $adapter" != "$reference sv/cim_adapter.sv" ] || { own=no; faulty="sv/faulty/cim_adapter.sv sv/faulty/cim_array.sv sv/faulty/cim_column.sv"; }
TIMEOUT_SECONDS=${TIMEOUT_SECONDS:-120}
timing="+LATENCY=${LATENCY:-0} +MULTIPLEXED=${MULTIPLEXED:-1} +TIMEOUT=${TIMEOUT:-10000}"

say() { printf 'sv/bench.sh: %s\n' "$1" >&2; }
need() { command -v "$1" > build/found || { say "$1 is not installed"; exit 1; }; }

# made OUTPUT COMMAND: true if this command made the output, and it is newer than all files of the hand-off's folder.
made() { [ -f "$1" ] && [ -f "$1.of" ] && [ "$(cat "$1.of")" = "$2" ] && [ -z "$(find . -path ./build -prune -o -type f -newer "$1" -print)" ]; }

# whole NAME VALUE LEAST MOST [OTHER]: ends the run unless the value is a number from LEAST to MOST.
whole() {
    case $2 in
    '' | *[!0-9]* | ??????????*) ;;
    *) [ "$2" -lt "$3" ] || [ "$2" -gt "$4" ] || return 0 ;;
    esac
    say "$1=$2; expected a whole number from $3 to $4${5:-}"
    exit 2
}

# given NAME FILE...: ends the run unless all files are there.
given() {
    name=$1
    shift
    [ -n "$*" ] || { say "$name is empty; expected the files of its sources"; exit 2; }
    for file in "$@"; do
        case $file in *' '*) say "$name: $file: has a blank; expected a path without blanks" && exit 2 ;; esac
        [ -f "$file" ] || { say "$name: $file: no such file; expected an absolute path without blanks, or one from the hand-off's folder"; exit 2; }
    done
}

# widths LOG: ends the run with a sentence if a simulator said that a port of the adapter has another width than the bench,
# or a port that the adapter connects another than the adapter. Connections inside a macro are its own affair.
widths() {
    said=$(sed -n -e 's/^\(.*\): warning: Port [0-9]* (\(.*\)) of \(.*\) expects \([0-9]*\) bits, got \([0-9]*\)\..*/\1: port \2 of \3 has \4 bits; expected \5/p' \
        -e "s/^%Warning-WIDTH[A-Z]*: \(.*\):[0-9]*: .*port connection '\(.*\)' expects \([0-9]*\) bits.* generates \([0-9]*\) bits.*/\1: port \2 has \3 bits; expected \4/p" "$1")
    found=$(printf '%s\n' "$said" | grep -e 'tb_boundary\.svh:' | head -n 1)
    [ -n "$found" ] || found=$(printf '%s\n' "$said" | grep -F -e "$adapter:" | head -n 1)
    [ -z "$found" ] || { say "$found"; exit 2; }
}

# refused LOG KIND: ends the run with a sentence and what a simulator said of sources that it does not compile.
refused() {
    port=$(sed -n -e "s/^.*error: port \`\`\(.*\)'' is not a port of array_under_test\..*/\1/p" \
        -e "s/^%Error: .*tb_boundary\.svh:.*: Pin is not an in.out.inout.param.interface: '\(.*\)'$/\1/p" "$1" | head -n 1)
    case $2 in
    cam) module=cim_cam files=$cam ;;
    *) module=cim_adapter files="$adapter $macro" ;;
    esac
    if [ -n "$port" ]; then
        say "$adapter: $module has no port $port; expected the ports of sv/$module.sv"
    else
        say "$files: the bench does not compile with them; expected a module $module with the ports of sv/$module.sv, and all modules in it"
    fi
    # Verilator's warnings come first.
    sed '/^%Warning/,/^%Error/ { /^%Error/!d; }' "$1" >&2
    exit 1
}

# build SIMULATOR KIND FOLDER OUTPUT SOURCES: compiles the bench of a kind with the parts in a folder, and the sources of an array.
build() {
    need "$1"
    simulator=$1 include="-I$3 -Isv -Isv/$2" output=$4 top=tb_array own_parts=$3 kind_built=$2
    case $2 in
    cam)
        top=tb_cam
        set -- sv/cam/parameters.svh sv/tb_cam.sv "$3/cim_rank.sv" $5
        ;;
    *)
        set -- "sv/$2/parameters.svh" sv/tb_array.sv "$3/cim_macro.sv" "$3/cim_output.sv" $5
        # Arrays are written by write-verify if the target has it.
        [ ! -f sv/cim_writer.sv ] || set -- -DWRITE_VERIFY=1 "$@" "$own_parts/cim_writer.sv" sv/cim_cells.sv
        ;;
    esac
    command="$simulator ${OPTIMIZE:=-O1} ${CC:-} $include $*"
    # Sources from elsewhere may include unknown files: always compile them.
    case "$macro $adapter $cam" in /* | *' /'* | *..*) ;; *) ! made "$output" "$command" || return 0 ;; esac
    case $simulator in
    iverilog)
        iverilog -g2012 -Wall -Wno-timescale $include -s $top -o "$output" "$@" 2> "$output.log" || refused "$output.log" "$kind_built"
        widths "$output.log"
        cat "$output.log" >&2
        ;;
    verilator)
        # Headers take most of the time: compile one source in place of many, and Verilator's own sources once.
        # Unrolled loops take longer to compile and run no faster. Some arrays that are assigned in loops need it.
        mkdir -p "${VERILATED:=build/verilated}" "$output.obj"
        kept=
        for object in "$VERILATED"/*.o; do
            [ -f "$object" ] || continue
            cp "$object" "$output.obj"
            kept="$kept -o ${object##*/}"
        done
        done=no
        for unroll in '--unroll-stmts 1 --unroll-count 65536' '--unroll-count 8192'; do
            verilator --binary --timing -O3 $unroll -Wall -Wno-fatal $include --top-module $top --Mdir "$output.obj" \
                -MAKEFLAGS "VM_PARALLEL_BUILDS=0 OPT_FAST='$OPTIMIZE' OPT_GLOBAL='$OPTIMIZE'$kept" -o ../"${output##*/}" \
                sv/waivers.vlt "$@" > "$output.log" 2>&1 && done=yes && break
            grep -q BLKLOOPINIT "$output.log" || break
        done
        [ $done = yes ] || refused "$output.log" "$kind_built"
        widths "$output.log"
        for object in "$output.obj"/verilated*.o; do
            # Copy, then rename: several benches may share the folder.
            [ -f "$VERILATED/${object##*/}" ] || { cp "$object" "$VERILATED/${output##*/}.$$" && mv "$VERILATED/${output##*/}.$$" "$VERILATED/${object##*/}"; }
        done
        ;;
    esac
    printf '%s' "$command" > "$output.of"
}

# watched OUTPUT COMMAND...: runs a simulation, and ends it if no new step begins for TIMEOUT_SECONDS: a loop without delay
# stops the clocks that the bench counts. Verilator finds most such loops by itself.
watched() {
    step=$1.step said=$1.said shown=$1.shown
    shift
    rm -f "$step.still"
    : > "$step"
    "$@" +STEP="$step" > "$shown" 2> "$said" &
    simulation=$!
    (
        trap 'kill $nap; exit' TERM
        while :; do
            : > "$step.seen"
            sleep "$TIMEOUT_SECONDS" &
            nap=$!
            wait $nap
            [ -n "$(find "$step" -newer "$step.seen")" ] || break
        done
        : > "$step.still"
        kill -9 $simulation
    ) > build/found 2>&1 &
    watch=$!
    ended=0
    # What runs in the background does not see an interrupt of the keyboard.
    trap '{ kill -9 $simulation; kill $watch; } 2> build/found || true; exit 130' INT TERM
    wait $simulation 2> build/found || ended=$?
    trap - INT TERM
    kill $watch 2> build/found || true
    loop="expected no loop without delay in $adapter $macro"
    [ "${kind:-}" != cam ] || loop="expected no loop without delay in $cam"
    at=$(cat "$step")
    if [ -f "$step.still" ]; then
        say "${at:-before the first step}: no further step within $TIMEOUT_SECONDS s; $loop (TIMEOUT_SECONDS=N waits longer)"
    elif grep -q '^%Error: .* did not converge' "$shown" "$said"; then
        say "${at:-before the first step}: signals do not settle; $loop"
    else
        cat "$shown"
        cat "$said" >&2
    fi
    return $ended
}

# simulate SIMULATOR OUTPUT [FAULT]
simulate() {
    case $1 in
    iverilog) watched "$2" vvp -n "$2" +HANDOFF=. +FAULT="${3:-0}" $timing ;;
    verilator) watched "$2" "$2" +HANDOFF=. +FAULT="${3:-0}" $timing ;;
    esac
}

# tested: names the sources under test.
tested() {
    under_test="$adapter with $macro"
    [ $own = yes ] || under_test="the reference macro, $under_test"
    [ "$adapter" != sv/cim_adapter.sv ] || under_test="$under_test, LATENCY=${LATENCY:-0}, MULTIPLEXED=${MULTIPLEXED:-1}"
    [ ! -d sv/cam ] || [ "$goal" = cocotb ] || under_test="$under_test; $cam"
    [ "$goal" != random ] || [ "${FAULT:-0}" = 0 ] || under_test="$under_test; fault $FAULT: $(fault_line | cut -f 5)"
    printf 'tested: %s\n' "$under_test"
}

# fault_line: the line of fault FAULT in sv/faults.txt.
fault_line() { grep -m 1 "^$((FAULT))[^0-9]" sv/faults.txt; }

# each COMMAND...: runs a command with the name of each kind, then prints the totals.
each() {
    failed=0
    folders="sv/kind*"
    case $goal in icarus | verilator | random) folders=$all ;; esac
    rm -f build/"$goal"_*.txt
    for folder in $folders; do
        kind=${folder#sv/}
        if ! "$@" "$kind" > "build/${goal}_$kind.txt"; then failed=1
        elif ! grep -q '^PASS$' "build/${goal}_$kind.txt"; then
            failed=1
            say "$kind: the run ended before the bench had compared all; expected no \$finish in $adapter and $macro"
        fi
        sed "s/^/$kind: /" "build/${goal}_$kind.txt"
    done
    awk '/^[a-z_]+: [0-9]+ compared, [0-9]+ differ$/ {
            if (!($1 in compared)) taps[count++] = $1
            compared[$1] += $2; differ[$1] += $4
        }
        END { for (i = 0; i < count; i++) printf "%s %.0f compared, %.0f differ\n", taps[i], compared[taps[i]], differ[taps[i]] }' \
        build/"$goal"_*.txt > "build/$goal.txt"
    cat "build/$goal.txt"
    [ $failed = 0 ] || exit 1
    [ -s "build/$goal.txt" ] || { say "nothing was compared"; exit 1; }
    tested
    printf 'PASS\n'
}

# with_taps SIMULATOR KIND
with_taps() {
    under_test="$adapter $macro"
    [ "$2" != cam ] || under_test=$cam
    build "$1" "$2" sv "build/$1_$2" "$under_test" && simulate "$1" "build/$1_$2"
}

# with_random_inputs FOLDER KIND SOURCES FAULT
with_random_inputs() {
    need "${CC:=gcc}"
    # Verilator would compile a .c file as C++.
    made build/dpi.o "$CC" || {
        "$CC" -std=c99 -O3 -Wall -Wextra -Wconversion -Ic -Irandom -c random/dpi.c -o "build/dpi.$$.o" && mv "build/dpi.$$.o" build/dpi.o
        printf '%s' "$CC" > build/dpi.o.of
    }
    binary=build/random_$2
    [ "$1" = sv ] || binary=build/faulty_random_$2
    # Right values of a CAM are computed in its bench.
    golden=../dpi.o
    [ "$2" != cam ] || golden=
    build verilator "$2" "$1" "$binary" "$3 -DRANDOM=1 -Irandom $golden" &&
        watched "$binary" "$binary" +HANDOFF=. +VECTORS="${VECTORS:-1000}" +SEED="${SEED:-1}" +FAULT="$4" $timing
}

# planted FILE KINDS KIND: yes if a fault is in the bench of a kind, no if its kinds do not show it, equal if it is proved to change
# no number there, own if its file is replaced
planted() {
    case $own,$1 in
    yes,cim_adapter.sv | yes,cim_array.sv | yes,cim_column.sv) echo own && return ;;
    esac
    case $3,$1,$cam in
    cam,cim_rank.sv,* | cam,cim_cam.sv,sv/cim_cam.sv) ;;
    cam,* | *,cim_rank.sv,* | *,cim_cam.sv,*) echo own && return ;;
    esac
    case ,$2, in
    *,"$3",*) echo yes ;;
    *,"=$3",*) echo equal ;;
    *) echo no ;;
    esac
}

# by_taps SIMULATOR KIND: finds faults by the vectors of taps/, and keeps a line for each that shows
by_taps() {
    output=build/faulty_$1_$2
    build "$1" "$2" sv/faulty "$output" "$sources"
    simulate "$1" "$output" > "build/control_$1_$2.txt" && grep -q '^PASS$' "build/control_$1_$2.txt" || { say "$1: $2: the control without a fault fails"; exit 1; }
    while IFS=$tab read -r number tap file kinds name; do
        [ "$(planted "$file" "$kinds" "$2")" = yes ] || continue
        simulate "$1" "$output" "$number" | grep -m 1 "^fault $number: found at " || true
    done < sv/faults.txt > "build/found_$1_$2.txt"
}

# by_random_inputs KIND: the same of the faults that the vectors of taps/ do not show in Icarus, by drawn inputs
by_random_inputs() {
    : > "build/found_random_$1.txt"
    while IFS=$tab read -r number tap file kinds name; do
        [ "$(planted "$file" "$kinds" "$1")" = yes ] || continue
        grep -q "^fault $number: " "build/found_iverilog_$1.txt" && continue
        (with_random_inputs sv/faulty "$1" "$sources" "$number") > "build/drawn_$1.txt" < /dev/null || true
        grep -m 1 "^fault $number: found at " "build/drawn_$1.txt" || true
    done < sv/faults.txt > "build/found_random_$1.txt"
}

# alone KIND
alone() { "$PYTHON" sv/array_cocotb.py "$1" "$adapter" $macro; }

goal=${1:-}
mkdir -p build
# Drawn vectors run longer than they compile.
[ "$goal" != random ] || : "${OPTIMIZE:=-O2}"
[ "${LATENCY:-0}" = random ] || whole LATENCY "${LATENCY:-0}" 0 255 ', or random'
whole MULTIPLEXED "${MULTIPLEXED:-1}" 1 255
whole TIMEOUT "${TIMEOUT:-10000}" 2 999999999
whole TIMEOUT_SECONDS "$TIMEOUT_SECONDS" 1 999999999
whole VECTORS "${VECTORS:-1000}" 0 999999999
whole SEED "${SEED:-1}" 0 999999999
whole FAULT "${FAULT:-0}" 0 999999999
given MACRO $macro
given ADAPTER "$adapter"
all=$(echo sv/kind*)
[ ! -d sv/cam ] || { given CAM $cam; all="$all sv/cam"; }
[ "${FAULT:-0}" = 0 ] || fault_line > build/found || { say "FAULT=$FAULT; expected a number of sv/faults.txt, or 0 for none"; exit 2; }
[ "${FAULT:-0}" = 0 ] || {
    # A fault in a source that was replaced would pass unseen.
    case $own,$(fault_line | cut -f 3) in
    yes,cim_adapter.sv | yes,cim_array.sv | yes,cim_column.sv) replaced="MACRO and ADAPTER" ;;
    *,cim_cam.sv) [ "$cam" = sv/cim_cam.sv ] || replaced=CAM ;;
    esac
    [ -z "${replaced:-}" ] || { say "FAULT=$FAULT is in $(fault_line | cut -f 3), for which $replaced stand; expected a fault of another file of sv/faults.txt"; exit 2; }
}
[ "$goal" != mutants ] || grep -q "^[0-9]" sv/faults.txt 2> build/found || { say 'sv/faults.txt: has no faults, or is missing; export again'; exit 2; }
case $goal in
icarus) each with_taps iverilog ;;
verilator) each with_taps verilator ;;
mutants)
    missed=0 tab=$(printf '\t')
    : > build/planted.txt
    for folder in $all; do
        kind=${folder#sv/} failed=0 sources=$faulty
        [ "$kind" != cam ] || sources=$cam
        [ "$sources" != sv/cim_cam.sv ] || sources=sv/faulty/cim_cam.sv
        # Side by side: Verilator compiles while Icarus runs.
        { by_taps iverilog "$kind" && by_random_inputs "$kind"; } &
        beside=$!
        (by_taps verilator "$kind") || failed=1
        wait $beside || failed=1
        [ $failed = 0 ] || exit 1
        for simulator in iverilog verilator; do
            printf '%s: %s: the control passes\n' $simulator "$kind"
            while IFS=$tab read -r number tap file kinds name; do
                case $(planted "$file" "$kinds" "$kind") in
                own) continue ;;
                equal)
                    printf '%s: %s: %s: proved to change no number\n' $simulator "$kind" "$name"
                    continue
                    ;;
                no)
                    printf '%s: %s: %s: no vector shows it\n' $simulator "$kind" "$name"
                    continue
                    ;;
                esac
                found=$(sed -n "s/^fault $number: //p" "build/found_${simulator}_$kind.txt") how=
                printf '%s\n' "$number" >> build/planted.txt
                [ -n "$found" ] || {
                    how=', by random inputs in Verilator'
                    found=$(sed -n "s/^fault $number: //p" "build/found_random_$kind.txt")
                }
                printf '%s: %s: %s: %s%s\n' $simulator "$kind" "$name" "$found" "$how"
                # An array that does not show its sums shows their faults in its codes.
                grep -q '^sums: 0 compared' "build/control_${simulator}_$kind.txt" && tap="$tap|codes|converter"
                case "|$tap|" in
                *"|${found#found at }|"*) ;;
                *) missed=1 && say "$kind: $name: expected at $tap" ;;
                esac
            done < sv/faults.txt
        done
    done
    [ $missed = 0 ] || exit 1
    tested
    printf '%s faults, each found at its tap in every kind of array whose vectors show it\n' "$(sort -u build/planted.txt | wc -l)"
    ;;
random)
    parts=sv sources="$adapter $macro"
    [ "${FAULT:-0}" = 0 ] || parts=sv/faulty sources=$faulty
    need verilator
    searched=$cam
    [ "$parts" = sv ] || [ "$cam" != sv/cim_cam.sv ] || searched=sv/faulty/cim_cam.sv
    drawn() {
        case $1 in
        cam) with_random_inputs $parts cam "$searched" "${FAULT:-0}" ;;
        *) with_random_inputs $parts "$1" "$sources" "${FAULT:-0}" ;;
        esac
    }
    each drawn
    ;;
cocotb)
    need iverilog
    need "${PYTHON:=python3}"
    "$PYTHON" -c 'import cocotb_tools' 2> build/found || { say "$PYTHON has no cocotb 2"; exit 1; }
    each alone
    ;;
tested) tested ;;
*)
    say "expected icarus, verilator, random, cocotb, mutants or tested"
    exit 2
    ;;
esac
