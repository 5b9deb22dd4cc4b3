// From the bench's ports (handoff/sv/cim_adapter.sv explains them) to those of tinymoa_dcim, the array
// of 16 x 16 of https://github.com/EzraWolf/TinyMOA-IHP26a (examples/handoff/README.md).
//
// It has no write port of its own: it fetches rows, then planes of digits, from a memory of which it is
// told the addresses, and stores a result per column there. This adapter is that memory, and writes the
// registers. Weights are fetched again after the bench has written any.
//
// Its cells multiply +1 and -1: with weights w and inputs x of 0 and 1 it sums (2w-1)(2x-1) over its 16
// rows, in each plane p of the digits, times 2^p. A read of zeros, once for each set of weights, leaves
//
//     result - result of zeros = 4 (sum of weights times digits) - 2 (sum of digits)
module cim_adapter import cim::*; (
    input  logic                          clk,
    input  logic                          rst,
    input  logic                          write_valid,
    output logic                          write_ready,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [LINE-1:0]               write_data,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [DIGIT_BITS*ROWS-1:0]    drive,
    input  logic [ROWS-1:0]               negative,
    input  logic [REFERENCES*STEP_BITS-1:0]            step,
    input  logic [CONVERTED*FINE_BITS-1:0]             offset,
    input  logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] thresholds,
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    output logic [CONVERTED-1:0]          out_valid,
    output logic [CONVERTED*CODE_BITS-1:0] codes,
    output logic                          shows_sums,
    output logic [CONVERTED*SUM_BITS-1:0] sums
);
    localparam int SIZE = 16;

    if (ROWS > SIZE || CONVERTED > SIZE) begin : g_size
        initial $fatal(1, "tinymoa: %0d rows and %0d columns; expected at most 16 of each", ROWS, CONVERTED);
    end
    if (CELLS * CELL_BITS != 1 || SIGNED_CELLS != '0 || BESIDE != 0 || LEAK != 0 || CONVERTER != 0) begin : g_cells
        initial $fatal(1, "tinymoa: its cells have one bit and its sums no converter; expected encoding twos-complement, cell_bits 1");
    end
    if (DIGIT_BITS != 1 && DIGIT_BITS != 2 && DIGIT_BITS != 4) begin : g_digits
        initial $fatal(1, "tinymoa: digits of %0d bits; expected 1, 2 or 4", DIGIT_BITS);
    end

    // Its registers, and the addresses that they have after a reset.
    localparam logic [5:0] CONTROL = 6'h00, STATUS = 6'h04;
    localparam logic [9:0] WEIGHT_BASE = 10'h180, INPUT_BASE = 10'h1A0, RESULT_BASE = 10'h1B0;

    localparam logic [1:0] IDLE = 2'd0, START = 2'd1, RUN = 2'd2, ANSWER = 2'd3;
    logic [1:0] phase;
    logic written, zeros;  // weights are to be fetched; this run reads zeros
    logic mmio_ready, mem_read, mem_write;
    logic [2:0] state;  // for debugging
    logic [31:0] mmio_rdata, mem_rdata, mem_wdata;
    logic [9:0] mem_addr;
    logic [SIZE*SIZE-1:0] rows;
    logic [DIGIT_BITS*ROWS-1:0] held;
    localparam int WIDE = SUM_BITS + 3;
    logic [SIZE*WIDE-1:0] result, of_zeros;

    tinymoa_dcim macro (
        .clk, .nrst(!rst), .mmio_ready, .mmio_write(phase == START), .mmio_wdata({27'd0, zeros, 3'(DIGIT_BITS), 1'b1}),
        .mmio_read(phase == RUN), .mmio_rdata, .mmio_addr((phase == START) ? CONTROL : STATUS),
        .mem_rdata, .mem_wdata, .mem_write, .mem_read, .mem_addr, .dbg_state(state)
    );

    // Places in the memory: of a row, a plane of digits, a result.
    logic [9:0] row_place, plane_place, result_place;
    assign row_place = mem_addr - WEIGHT_BASE;
    assign plane_place = mem_addr - INPUT_BASE;
    assign result_place = mem_addr - RESULT_BASE;

    // A result is in the memory before the status says that all are.
    logic stored, finished;
    assign finished = stored && mmio_ready && mmio_rdata[1:0] == 2'b10;
    assign write_ready = phase == IDLE;
    assign in_ready = phase == IDLE;
    always_ff @(posedge clk) begin
        if (write_valid && write_ready) begin
            rows[32'(write_row)*SIZE +: SIZE] <= SIZE'(write_data);
            written <= 1'b1;
        end
        if (mem_read && mem_addr >= INPUT_BASE) mem_rdata <= zeros ? '0 : plane(held, 32'(plane_place));
        else if (mem_read) mem_rdata <= 32'(rows[32'(row_place)*SIZE +: SIZE]);
        if (mem_write) begin
            result[32'(result_place)*WIDE +: WIDE] <= WIDE'($signed(mem_wdata));
            stored <= 32'(result_place) == SIZE - 1;
        end
        case (phase)
            IDLE: if (in_valid) begin
                held <= drive;
                zeros <= written;
                phase <= START;
            end
            START: begin
                stored <= 1'b0;
                phase <= RUN;
            end
            RUN: if (finished) begin
                if (zeros) of_zeros <= result;
                zeros <= 1'b0;
                written <= 1'b0;
                phase <= zeros ? START : ANSWER;
            end
            ANSWER: phase <= IDLE;
        endcase
        if (rst) begin
            phase <= IDLE;
            written <= 1'b0;
            rows <= '0;
        end
    end
    always @(posedge clk)
        if (in_valid && in_ready && negative != '0) $fatal(1, "tinymoa: a digit is negative; expected inputs in two's complement");

    function automatic logic [31:0] plane(input logic [DIGIT_BITS*ROWS-1:0] digits, input int number);
        plane = 32'(digits[number*ROWS +: ROWS]);
    endfunction

    // The sum of the digits of all rows.
    logic signed [WIDE-1:0] driven, product;
    always_comb begin
        driven = '0;
        for (int d = 0; d < DIGIT_BITS; d++)
            for (int r = 0; r < ROWS; r++) driven = driven + (WIDE'(held[d*ROWS + r]) <<< d);
    end
    always_comb
        for (int j = 0; j < CONVERTED; j++) begin
            product = ($signed(result[j*WIDE +: WIDE]) - $signed(of_zeros[j*WIDE +: WIDE]) + (driven <<< 1)) >>> 2;
            sums[j*SUM_BITS +: SUM_BITS] = SUM_BITS'(product);
            codes[j*CODE_BITS +: CODE_BITS] = CODE_BITS'(product);
        end
    assign out_valid = {CONVERTED{phase == ANSWER}};
    assign shows_sums = 1'b1;
    logic unused;
    assign unused = ^{step, offset, thresholds, lo, hi, state, mmio_rdata};
endmodule
