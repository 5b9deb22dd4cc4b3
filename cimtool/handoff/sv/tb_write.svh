    // Write-verify: a word line is erased, then its cells get pulses until they lie within the bounds of their
    // digits. The array gets the digits whose targets are nearest to what the cells then conduct.
    localparam int LINE_CELLS = LINE / CELL_BITS / HEIGHT;
    logic erase = 1'b0, writing = 1'b0, running;
    logic [31:0] given_word_line = '0;
    logic [LINE_CELLS*32-1:0] lower = '0, upper = '0, conductance;
    logic [LINE_CELLS-1:0] up, down;
    cim_writer #(.CELLS(LINE_CELLS)) writer (
        .clk, .start(writing), .max_pulses(32'(max_pulses)), .lower, .upper, .read(conductance), .up, .down, .running
    );
    cim_cells #(.CELLS(LINE_CELLS)) cells_of_line (
        .clk, .erase, .word_line(given_word_line), .erased(32'(erased)), .pulse(32'(pulse)), .up, .down, .conductance
    );

    logic signed [63:0] bounds [0:3*(1<<CELL_BITS)-1]; // of each digit: target, lowest, highest
    longint all_pulses = 0, unreached = 0;
    int most_pulses = 0;
    task automatic load_bounds;
        $readmemh({handoff, "/constants/", name, "/write_bounds.hex"}, bounds, 0, 3 * digit_count - 1);
    endtask

    // The digit of the nearest target.
    function automatic int digit_of(input longint g);
        longint away, least_away;
        digit_of = 0;
        least_away = -64'sd1;
        for (int n = 0; n < digit_count; n++) begin
            away = (g > bounds[3*n]) ? g - bounds[3*n] : bounds[3*n] - g;
            if (least_away < 0 || away < least_away) begin
                least_away = away;
                digit_of = n;
            end
        end
    endfunction

    int given_pulses [0:LINE_CELLS-1];
    task automatic write_cells(input int line, input logic [LINE-1:0] wanted, output logic [LINE-1:0] held);
        int digit, had;
        longint g;
        for (int k = 0; k < LINE_CELLS; k++) begin
            digit = 32'(wanted[k*CELL_BITS +: CELL_BITS]);
            lower[k*32 +: 32] = bounds[3*digit + 1][31:0];
            upper[k*32 +: 32] = bounds[3*digit + 2][31:0];
            given_pulses[k] = 0;
        end
        @(negedge clk);
        given_word_line = line; erase = 1'b1;
        @(negedge clk);
        erase = 1'b0; writing = 1'b1;
        @(negedge clk);
        writing = 1'b0;
        while (running) begin
            for (int k = 0; k < LINE_CELLS; k++)
                if (up[k] || down[k]) begin
                    had = given_pulses[k];
                    given_pulses[k] = had + 1;
                end
            @(negedge clk);
        end
        held = '0;
        for (int k = 0; k < LINE_CELLS; k++) begin
            digit = 32'(wanted[k*CELL_BITS +: CELL_BITS]);
            g = 64'(conductance[k*32 +: 32]);
            all_pulses = all_pulses + 64'(given_pulses[k]);
            if (given_pulses[k] > most_pulses) most_pulses = given_pulses[k];
            if (g < bounds[3*digit + 1] || g > bounds[3*digit + 2]) begin
                if (unreached == 0 && fault == 0)
                    $display("FAIL: %s: the cell of word line %0d, column %0d conducts %0d after %0d pulses; expected %0d to %0d, in 2^-%0d uS",
                        array, line, k, g, given_pulses[k], bounds[3*digit + 1], bounds[3*digit + 2], places);
                unreached = unreached + 64'd1;
                count(TAPS, 64'd1, 64'd1);
            end else count(TAPS, 64'd1, 64'd0);
            held[k*CELL_BITS +: CELL_BITS] = CELL_BITS'(digit_of(g));
        end
    endtask

    task automatic show_pulses;
        $display("write_verify: %0d compared, %0d differ", compared[TAPS], differ[TAPS]);
        $display("%0d cells, %0d pulses, mean %0d.%02d, at most %0d, %0d cells not reached", compared[TAPS], all_pulses,
            all_pulses / compared[TAPS], all_pulses * 100 / compared[TAPS] % 100, most_pulses, unreached);
    endtask
