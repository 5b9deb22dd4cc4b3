#!/bin/sh
# Runs the bench of a hand-off, from its folder:
#
#   sh sv/bench.sh icarus [COLUMN]      the macro against images, constants and taps, in Icarus Verilog
#   sh sv/bench.sh verilator [COLUMN]   the same in Verilator
#   sh sv/bench.sh random COLUMN VECTORS SEED FAULT
#                                       random inputs against the golden model, in Verilator
#   sh sv/bench.sh cocotb [COLUMN]      a column by itself, in cocotb and Icarus Verilog, with the sums of directed/
#   sh sv/bench.sh mutants              every fault of sv/faults.txt in both: each must be found at its tap
#
# COLUMN is the source of the column, or several in one word; sv/cim_column.sv where it is left out.
set -eu
export LC_ALL=C
column=${2:-sv/cim_column.sv}

say() { printf 'sv/bench.sh: %s\n' "$1" >&2; }
if [ -f sv/NOT_COVERED ]; then
    say "$(cat sv/NOT_COVERED)"
    exit 1
fi

need() { command -v "$1" > build/found || { say "$1 is not installed"; exit 1; }; }

# build SIMULATOR FOLDER COLUMN OUTPUT [MORE]: compiles the bench with the macro of a folder, and more.
build() {
    need "$1"
    for file in $3; do
        [ -f "$file" ] || { say "COLUMN: $file: no such file; expected a path from the folder of the hand-off, or a whole one"; exit 2; }
    done
    simulator=$1 output=$4
    set -- "$2/cim_macro.sv" "$2/cim_output.sv" $3 ${5:-}
    case $simulator in
    iverilog) iverilog -g2012 -Wall -Isv -s tb_macro -o "$output" sv/tb_macro.sv "$@" ;;
    verilator)
        verilator --binary --timing -O3 -Wall -Wno-fatal -Isv --top-module tb_macro --Mdir "$output.obj" -CFLAGS -O1 \
            -o ../"${output##*/}" sv/waivers.vlt sv/tb_macro.sv "$@" > "$output.log" 2>&1 || { cat "$output.log" >&2; exit 1; }
        ;;
    esac
}

# simulate SIMULATOR OUTPUT [FAULT]
simulate() {
    case $1 in
    iverilog) vvp -n "$2" +HANDOFF=. +FAULT="${3:-0}" ;;
    verilator) "$2" +HANDOFF=. +FAULT="${3:-0}" ;;
    esac
}

mkdir -p build
case ${1:-} in
icarus)
    build iverilog sv "$column" build/tb_macro.vvp
    simulate iverilog build/tb_macro.vvp
    ;;
verilator)
    build verilator sv "$column" build/tb_macro
    simulate verilator build/tb_macro
    ;;
mutants)
    missed=0
    for simulator in iverilog verilator; do
        output=build/faulty_$simulator
        build $simulator sv/faulty sv/faulty/cim_column.sv "$output"
        simulate $simulator "$output" > build/control.txt || { say "$simulator: the control without a fault fails"; exit 1; }
        printf '%s: the control passes\n' $simulator
        while IFS="$(printf '\t')" read -r number tap name; do
            found=$(simulate $simulator "$output" "$number" | grep -m 1 "^fault $number: found at " || true)
            printf '%s: %s: %s\n' $simulator "$name" "${found#*: }"
            [ "$found" = "fault $number: found at $tap" ] || { missed=1; say "$name: expected at $tap"; }
        done < sv/faults.txt
    done
    [ $missed = 0 ] || exit 1
    printf '%s faults, each found at its tap in both simulators\n' "$(wc -l < sv/faults.txt | tr -d ' ')"
    ;;
random)
    folder=sv fault=$5
    [ "$fault" = 0 ] || folder=sv/faulty column=sv/faulty/cim_column.sv
    need verilator
    need "${CC:=gcc}"
    # Verilator would compile a .c file as C++.
    "$CC" -std=c99 -O3 -Wall -Wextra -Wconversion -Ic -Irandom -c random/dpi.c -o build/dpi.o
    build verilator $folder "$column" build/random "-DRANDOM=1 -Irandom ../dpi.o"
    build/random +HANDOFF=. +VECTORS="$3" +SEED="$4" +FAULT="$fault" | tee build/random.txt
    grep -q '^PASS$' build/random.txt
    ;;
cocotb)
    need iverilog
    need "${PYTHON:=python3}"
    "$PYTHON" -c 'import cocotb_tools' 2> build/found || { say "$PYTHON has no cocotb 2"; exit 1; }
    "$PYTHON" sv/column_cocotb.py $column
    ;;
*)
    say "expected icarus, verilator, random, cocotb or mutants"
    exit 2
    ;;
esac
