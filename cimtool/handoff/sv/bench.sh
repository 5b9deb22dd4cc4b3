#!/bin/sh
# Runs the bench of a hand-off, from its folder:
#
#   sh sv/bench.sh icarus [COLUMN]      macros against images, constants and taps, in Icarus Verilog
#   sh sv/bench.sh verilator [COLUMN]   the same in Verilator
#   sh sv/bench.sh random COLUMN VECTORS SEED FAULT
#                                       random inputs against the golden model, in Verilator
#   sh sv/bench.sh cocotb [COLUMN]      a column by itself, in cocotb and Icarus Verilog, with the sums of directed/
#   sh sv/bench.sh mutants              every fault of sv/faults.txt in both: each must be found at its tap
#
# Each kind of layers has its own macro, sv/kindN; the last lines are the totals of all kinds.
# COLUMN is the source of the column, or several sources in one quoted word [default: sv/cim_column.sv].
set -eu
export LC_ALL=C
column=${2:-sv/cim_column.sv}

say() { printf 'sv/bench.sh: %s\n' "$1" >&2; }
need() { command -v "$1" > build/found || { say "$1 is not installed"; exit 1; }; }

# made OUTPUT COMMAND: true if this command made the output, and it is newer than the hand-off's sources.
made() { [ -f "$1" ] && [ -f "$1.of" ] && [ "$(cat "$1.of")" = "$2" ] && [ -z "$(find sv c random -newer "$1")" ]; }

# build SIMULATOR KIND FOLDER COLUMN OUTPUT [MORE]: compiles the bench of a kind with the macro of a folder, and more.
build() {
    need "$1"
    for file in $4; do
        [ -f "$file" ] || { say "COLUMN: $file: no such file; expected an absolute path, or one from the hand-off's folder"; exit 2; }
    done
    simulator=$1 include="-Isv -Isv/$2" output=$5
    set -- "$3/cim_macro.sv" "$3/cim_output.sv" $4 ${6:-}
    command="$simulator ${OPTIMIZE:=-O1} ${CC:-} $include $*"
    # A column from elsewhere may include unknown files: always compile it.
    case $column in sv/*) ! made "$output" "$command" || return 0 ;; esac
    case $simulator in
    iverilog) iverilog -g2012 -Wall $include -s tb_macro -o "$output" sv/tb_macro.sv "$@" || return ;;
    verilator)
        # Headers take most of the time: compile one source in place of many, and Verilator's own sources once.
        # Unrolled loops take longer to compile and run no faster.
        mkdir -p "${VERILATED:=build/verilated}" "$output.obj"
        kept=
        for object in "$VERILATED"/*.o; do
            [ -f "$object" ] || continue
            cp "$object" "$output.obj"
            kept="$kept -o ${object##*/}"
        done
        verilator --binary --timing -O3 --unroll-stmts 1 -Wall -Wno-fatal $include --top-module tb_macro --Mdir "$output.obj" \
            -MAKEFLAGS "VM_PARALLEL_BUILDS=0 OPT_FAST='$OPTIMIZE' OPT_GLOBAL='$OPTIMIZE'$kept" -o ../"${output##*/}" \
            sv/waivers.vlt sv/tb_macro.sv "$@" > "$output.log" 2>&1 || { cat "$output.log" >&2; exit 1; }
        for object in "$output.obj"/verilated*.o; do
            # Copy, then rename: several benches may share the folder.
            [ -f "$VERILATED/${object##*/}" ] || { cp "$object" "$VERILATED/kept.$$" && mv "$VERILATED/kept.$$" "$VERILATED/${object##*/}"; }
        done
        ;;
    esac
    printf '%s' "$command" > "$output.of"
}

# simulate SIMULATOR OUTPUT [FAULT]
simulate() {
    case $1 in
    iverilog) vvp -n "$2" +HANDOFF=. +FAULT="${3:-0}" ;;
    verilator) "$2" +HANDOFF=. +FAULT="${3:-0}" ;;
    esac
}

# each COMMAND...: runs a command with the name of each kind, then prints the totals.
each() {
    failed=0
    rm -f build/kind*.txt
    for folder in sv/kind*; do
        kind=${folder#sv/}
        "$@" "$kind" > "build/$kind.txt" && grep -q '^PASS$' "build/$kind.txt" || failed=1
        sed "s/^/$kind: /" "build/$kind.txt"
    done
    awk '/^[a-z_]+: [0-9]+ compared, [0-9]+ differ$/ {
            if (!($1 in compared)) taps[count++] = $1
            compared[$1] += $2; differ[$1] += $4
        }
        END { for (i = 0; i < count; i++) printf "%s %.0f compared, %.0f differ\n", taps[i], compared[taps[i]], differ[taps[i]] }' \
        build/kind*.txt > build/sums.txt
    cat build/sums.txt
    [ $failed = 0 ] || exit 1
    [ -s build/sums.txt ] || { say "nothing was compared"; exit 1; }
    printf 'PASS\n'
}

# with_taps SIMULATOR KIND
with_taps() { build "$1" "$2" sv "$column" "build/$1_$2" && simulate "$1" "build/$1_$2"; }

# with_random_inputs FOLDER VECTORS SEED FAULT KIND
with_random_inputs() {
    build verilator "$5" "$1" "$column" "build/random_$5" "-DRANDOM=1 -Irandom ../dpi.o" &&
        "build/random_$5" +HANDOFF=. +VECTORS="$2" +SEED="$3" +FAULT="$4"
}

# alone KIND
alone() { "$PYTHON" sv/column_cocotb.py "$1" $column; }

mkdir -p build
case ${1:-} in
icarus) each with_taps iverilog ;;
verilator) each with_taps verilator ;;
mutants)
    missed=0 tab=$(printf '\t')
    for simulator in iverilog verilator; do
        for folder in sv/kind*; do
            kind=${folder#sv/}
            output=build/faulty_${simulator}_$kind
            build $simulator "$kind" sv/faulty sv/faulty/cim_column.sv "$output"
            simulate $simulator "$output" > build/control.txt && grep -q '^PASS$' build/control.txt || { say "$simulator: $kind: the control without a fault fails"; exit 1; }
            printf '%s: %s: the control passes\n' $simulator "$kind"
            while IFS=$tab read -r number tap kinds name; do
                case ,$kinds, in
                *,$kind,*) ;;
                *)
                    printf '%s: %s: %s: not applicable\n' $simulator "$kind" "$name"
                    continue
                    ;;
                esac
                found=$(simulate $simulator "$output" "$number" | grep -m 1 "^fault $number: found at " || true)
                printf '%s: %s: %s: %s\n' $simulator "$kind" "$name" "${found#*: }"
                [ "$found" = "fault $number: found at $tap" ] || { missed=1; say "$kind: $name: expected at $tap"; }
            done < sv/faults.txt
        done
    done
    [ $missed = 0 ] || exit 1
    shown=$(grep -vc "${tab}none${tab}" sv/faults.txt)
    printf '%s faults, each found at its tap in both simulators wherever it is applicable\n' "$shown"
    ;;
random)
    folder=sv
    [ "$5" = 0 ] || folder=sv/faulty column=sv/faulty/cim_column.sv
    need verilator
    need "${CC:=gcc}"
    # Verilator would compile a .c file as C++.
    made build/dpi.o "$CC" || {
        "$CC" -std=c99 -O3 -Wall -Wextra -Wconversion -Ic -Irandom -c random/dpi.c -o build/dpi.o
        printf '%s' "$CC" > build/dpi.o.of
    }
    each with_random_inputs $folder "$3" "$4" "$5"
    ;;
cocotb)
    need iverilog
    need "${PYTHON:=python3}"
    "$PYTHON" -c 'import cocotb_tools' 2> build/found || { say "$PYTHON has no cocotb 2"; exit 1; }
    each alone
    ;;
*)
    say "expected icarus, verilator, random, cocotb or mutants"
    exit 2
    ;;
esac
