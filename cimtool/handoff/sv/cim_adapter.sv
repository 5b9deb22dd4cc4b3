// The adapter of the reference array: the boundary of the bench.
//
// A chip team replaces this file by one that leads from these ports to its own macro's:
//
//   write port   a word line is taken at a rising edge where write_valid and write_ready are high
//   input port   the digits of a cycle, with the references of its converters, are taken where
//                in_valid and in_ready are high; they stay until then
//   output port  in a clock in which out_valid has a lane's bit, codes has the lane's code: in the
//                clock of its input at the earliest, and at any time later. Every lane answers
//                each input once, in the order of inputs; lanes may answer in different clocks
//   sums         with the codes, where shows_sums is constant 1
//
// in_ready and write_ready must not depend on in_valid and write_valid in the same clock. Further
// inputs may be taken before earlier ones are answered.
//
//   +LATENCY=N      clocks from an input to its first codes (0); random: 0 to 15, drawn anew each time
//   +MULTIPLEXED=N  columns behind one converter, read one after another (1)
module cim_adapter import cim::*; (
    input  logic                          clk,
    input  logic                          rst,
    input  logic                          write_valid,
    output logic                          write_ready,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [LINE-1:0]               write_data,   // as the images have it, lane 0 lowest
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [DIGIT_BITS*ROWS-1:0]    drive,        // bit planes of magnitudes, row 0 lowest
    input  logic [ROWS-1:0]               negative,     // rows whose digit is negative
    input  logic [REFERENCES*STEP_BITS-1:0]            step,       // of each slice (slice_of)
    input  logic [CONVERTED*FINE_BITS-1:0]             offset,     // of each lane
    input  logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] thresholds, // of each slice, if CONVERTER is 2
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    output logic [CONVERTED-1:0]          out_valid,
    output logic [CONVERTED*CODE_BITS-1:0] codes,
    output logic                          shows_sums,
    output logic [CONVERTED*SUM_BITS-1:0] sums
);
    string given;
    logic drawn = 1'b0;
    logic [7:0] latency = '0, multiplexed = 8'd1;
    initial begin
        if ($value$plusargs("LATENCY=%s", given)) begin
            drawn = given == "random";
            if (!drawn && $sscanf(given, "%d", latency) != 1) $fatal(1, "FAIL: LATENCY=%s; expected 0 to 255, or random", given);
        end
        if ($value$plusargs("MULTIPLEXED=%d", multiplexed) != 0 && multiplexed == '0) $fatal(1, "FAIL: MULTIPLEXED=0; expected 1 to 255");
    end

    // A shift register of 15 bits, so that both simulators draw the same.
    logic [14:0] state = '1;
    logic [7:0] chosen, left = '0, turn = '0;
    assign chosen = drawn ? 8'(state[3:0]) : latency;

    logic busy = 1'b0, taken, shown;
    assign write_ready = 1'b1;
    assign in_ready = !busy;
    assign taken = in_valid && in_ready;
    assign shown = busy ? left == '0 : taken && chosen == '0;
    always_comb begin
        out_valid = {CONVERTED{shown}};
        if (shown && multiplexed != 8'd1)
            for (int j = 0; j < CONVERTED; j++) out_valid[j] = 8'(j % 32'(multiplexed)) == turn;
    end

    // The array sees an input until its last lane has answered.
    logic [DIGIT_BITS*ROWS-1:0] held_drive;
    logic [ROWS-1:0] held_negative;
    logic [REFERENCES*STEP_BITS-1:0] held_step;
    logic [CONVERTED*FINE_BITS-1:0] held_offset;
    logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] held_thresholds;
    always_ff @(posedge clk)
        if (rst) begin
            busy <= 1'b0;
            turn <= '0;
        end else if (taken) begin
            state <= {state[13:0], state[14] ^ state[13]};
            held_drive <= drive;
            held_negative <= negative;
            held_step <= step;
            held_offset <= offset;
            held_thresholds <= thresholds;
            busy <= !shown || multiplexed != 8'd1;
            left <= shown ? '0 : chosen - 8'd1;
            turn <= (shown && multiplexed != 8'd1) ? 8'd1 : '0;
        end else if (busy && left != '0) left <= left - 8'd1;
        else if (busy) begin
            busy <= turn + 8'd1 != multiplexed;
            turn <= (turn + 8'd1 == multiplexed) ? '0 : turn + 8'd1;
        end

    assign shows_sums = 1'b1;
    cim_array array (
        .clk, .write(write_valid), .write_row, .write_data,
        .drive(busy ? held_drive : drive), .negative(busy ? held_negative : negative), .step(busy ? held_step : step),
        .offset(busy ? held_offset : offset), .thresholds(busy ? held_thresholds : thresholds), .lo, .hi, .sums, .codes
    );
endmodule
