    // The array's handshakes: what it takes, what it answers, and a limit on how long it may take.
    int limit = 10000, quiet = 0, waiting = 0; // clocks; clocks without a handshake; unanswered inputs
    logic [CONVERTED-1:0] seen = '0;           // lanes that have answered the first of these
    logic accepted, complete;
    assign accepted = in_valid && in_ready;
    assign complete = (seen | out_valid) == '1;
    always_ff @(posedge clk) begin
        seen <= (complete || rst) ? '0 : seen | out_valid;
        waiting <= rst ? 0 : waiting + 32'(accepted) - 32'(complete);
    end

    // Ends the run at a step that an array does not keep to.
    task automatic stop(input string where, input string reason);
        if (fault != 0) begin
            $display("fault %0d: found at answers", fault);
            $finish;
        end else $fatal(1, "FAIL: %s: %s", where, reason);
    endtask

    task automatic write_line(input int row, input logic [LINE-1:0] cells);
        at_step($sformatf("%s, word line %0d", array, row));
        @(negedge clk);
        write_valid = 1'b1; write_row = $clog2(ROWS)'(row); write_data = cells;
        quiet = 0;
        while (write_ready !== 1'b1) begin
            if (quiet == limit) stop(array, $sformatf("word line %0d is not taken within %0d clocks (write_ready)", row, limit));
            quiet = quiet + 1;
            @(negedge clk);
        end
        @(posedge clk);
        #1 write_valid = 1'b0;
    endtask

    // One clock of an array that has been asked: what it says must answer an input, each lane once.
    task automatic listen(input string where);
        int count_seen;
        if ((^{out_valid, in_ready, shows_sums}) === 1'bx) stop(where, "out_valid, in_ready or shows_sums is not defined");
        if (out_valid != '0 && waiting <= 0 && !accepted) stop(where, "codes without an input (out_valid)");
        if ((out_valid & seen) != '0) stop(where, "a lane answers twice before all have answered (out_valid)");
        quiet = (accepted || out_valid != '0) ? 0 : quiet + 1;
        if (quiet > limit) begin
            count_seen = 0;
            for (int l = 0; l < CONVERTED; l++) count_seen = count_seen + 32'(seen[l]);
            if (waiting == 0) stop(where, $sformatf("digits are not taken within %0d clocks (in_ready)", limit));
            stop(where, $sformatf("no answer within %0d clocks (out_valid): %0d of %0d lanes", limit, count_seen, CONVERTED));
        end
    endtask

    task automatic compare_digits(input int index);
        longint wrong;
        logic [DIGIT_LANE-1:0] digit;
        wrong = 0;
        if (digits !== want_digits[index])
            for (int r = 0; r < ROWS; r++) begin
                digit = want_digits[index][r*DIGIT_LANE +: DIGIT_LANE];
                if (digits[r*DIGIT_LANE +: DIGIT_LANE] !== digit) wrong = wrong + 1;
            end
        count(0, longint'(ROWS), wrong);
    endtask

    // The lanes that answer in this clock.
    task automatic compare_answers(input int index);
        longint values, wrong_sums, wrong_codes;
        logic [SUM_BITS-1:0] sum;
        logic [CODE_BITS-1:0] code;
        values = longint'(used_lanes); wrong_sums = 0; wrong_codes = 0;
        if (out_valid != '1 || codes !== want_codes[index] || (shows_sums && sums !== want_sums[index])) begin
            values = 0;
            for (int l = 0; l < CONVERTED; l++)
                if (used[l] && out_valid[l]) begin
                    values = values + 1;
                    sum = want_sums[index][l*SUM_BITS +: SUM_BITS];
                    code = want_codes[index][l*CODE_BITS +: CODE_BITS];
                    if (sums[l*SUM_BITS +: SUM_BITS] !== sum) wrong_sums = wrong_sums + 1;
                    if (codes[l*CODE_BITS +: CODE_BITS] !== code) wrong_codes = wrong_codes + 1;
                end
        end
        if (shows_sums) count(1, values, wrong_sums);
        count(2, values, wrong_codes);
    endtask

    // Drives the vectors of `inputs` and compares the taps, in the order of the inputs.
    logic signed [63:0] want_whole, whole;
    logic signed [ACC_BITS-1:0] sum_before;
    task automatic drive_vectors(input int column, input int end_column);
        int first, next_input, next_answer;
        for (int n = 0; n < vectors; n++) begin
            at_step($sformatf("%s %s, vector %0d", array, group, n));
            @(negedge clk);
            x = inputs[n]; start = 1'b1;
            listen($sformatf("%s %s, before vector %0d", array, group, n));
            @(negedge clk) start = 1'b0;
            first = n * 32'(cycles);
            next_input = first; next_answer = first;
            quiet = 0;
            while (!done) begin
                listen($sformatf("%s %s, vector %0d, cycle %0d", array, group, n, next_answer - first));
                if (accepted) begin
                    compare_digits(next_input);
                    next_input++;
                end
                if (out_valid != '0) compare_answers(next_answer);
                if (complete) next_answer++;
                @(negedge clk);
            end
            listen($sformatf("%s %s, after vector %0d", array, group, n));
            for (int w = 0; w < end_column - column; w++) begin
                want_whole = want_acc[n][w*64 +: 64];
                whole = 64'($signed(acc[w*ACC_BITS +: ACC_BITS]));
                count(3, 64'd1, (whole === want_whole) ? 64'd0 : 64'd1);
                add_up(n, column + w);
            end
        end
    endtask
