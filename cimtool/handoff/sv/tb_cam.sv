// Runs the arrays of a content-addressable memory through the queries of cam/, as steps.txt says, and
// compares distances, codes, sums, estimates and the shortlist.
//
//   +HANDOFF=DIR   the folder (.)
//   +FAULT=N       a fault of the sources that `make mutants` writes (0: none)
//   +TIMEOUT=N     clocks in which an array must answer a query (10000)
//   +STEP=FILE     a file for the step that runs (none)
module tb_cam;
    import cam::*;
    localparam int TAPS = 5;

    int fault = 0, limit = 10000;
    logic clk = 1'b0;
    always #5 clk = ~clk;

    logic rst = 1'b1, write_valid = 1'b0, in_valid = 1'b0, out_valid, shows_distances;
    logic [WORD_BITS-1:0] write_word = '0;
    logic [CELLS*CELL_LANE-1:0] write_data = '0, query = '0;
    logic [WORDS*LANE-1:0] codes, distances;
    cim_cam array_under_test (.*);

    logic start = 1'b0, valid = 1'b0;
    logic [31:0] item = '0;
    logic signed [63:0] sum = '0, factor = '0, offset = '0, estimate;
    logic [LENGTH*32-1:0] listed;
    cim_rank #(.LENGTH(LENGTH)) ranking (.*);

    // The content of files.
    logic [CELLS*CELL_LANE-1:0] cells [0:WORDS-1], queries [0:QUERIES-1];
    logic [WORDS*LANE-1:0] want_distances [0:QUERIES-1], want_codes [0:QUERIES-1];
    logic signed [63:0] factors [0:ITEMS-1], offsets [0:ITEMS-1];
    logic signed [63:0] want_sums [0:QUERIES*ITEMS-1], want_estimates [0:QUERIES*ITEMS-1];
    logic signed [63:0] want_listed [0:QUERIES*LENGTH-1];
    logic signed [63:0] sums [0:QUERIES*ITEMS-1];

    longint compared [0:TAPS-1], differ [0:TAPS-1];
    task automatic count(input int tap, input longint wrong);
        longint had;
        had = compared[tap];
        compared[tap] = had + 64'd1;
        had = differ[tap];
        differ[tap] = had + wrong;
        if (wrong != 0 && fault != 0) begin
            $display("fault %0d: found at %s", fault, tap_name(tap));
            $finish;
        end
    endtask

    function automatic string tap_name(int tap);
        case (tap)
            0: return "cam_distances";
            1: return "cam_codes";
            2: return "cam_sums";
            3: return "cam_estimates";
            default: return "cam_shortlist";
        endcase
    endfunction

    string handoff, keyword, name, array, segment, base;
    int file, got, first, last, waited, pass;
    int items, item_cells, queries_listed, value_bits, measure, list_length; // of a line `search`
    longint word_step, word_top;
    longint wrong;
    logic signed [63:0] had_sum;

    // The rest of a line of steps.txt.
    task automatic skip_line;
        logic [7:0] letter;
        int taken;
        taken = $fscanf(file, "%c", letter);
        while (taken == 1 && letter != "\n") taken = $fscanf(file, "%c", letter);
    endtask

    // Writes the words of an array one by one.
    task automatic store_words;
        $readmemh({handoff, "/cam/", name, "/", array, "/cells.hex"}, cells, 0, WORDS - 1);
        for (int w = 0; w < WORDS; w++) begin
            at_step($sformatf("%s/%s, word %0d", name, array, w));
            @(negedge clk);
            write_valid = 1'b1;
            write_word = WORD_BITS'(w);
            write_data = cells[w];
        end
        @(negedge clk);
        write_valid = 1'b0;
    endtask

`include "tb_progress.svh"
`ifdef RANDOM
`include "tb_cam_random.svh"
`else
`include "tb_cam_taps.svh"
`endif

    // Compares all queries with the words that hold items, and adds their codes to the items' sums.
    task automatic match_words;
        load_queries;
        load_matches;
        for (int n = 0; n < QUERIES; n++) begin
            at_step($sformatf("%s/%s, query %0d", name, array, n));
            @(negedge clk);
            in_valid = 1'b1;
            query = queries[n];
            @(negedge clk);
            in_valid = 1'b0;
            waited = 0;
            while (out_valid !== 1'b1 && waited < limit) begin
                @(negedge clk);
                waited = waited + 1;
            end
            if (out_valid !== 1'b1) $fatal(1, "FAIL: %s/%s, query %0d: no answer within %0d clocks (out_valid)", name, array, n, limit);
            for (int w = 0; w < last - first; w++) begin
                if (shows_distances) count(0, (distances[w*LANE +: LANE] === want_distances[n][w*LANE +: LANE]) ? 64'd0 : 64'd1);
                count(1, (codes[w*LANE +: LANE] === want_codes[n][w*LANE +: LANE]) ? 64'd0 : 64'd1);
                had_sum = sums[n*ITEMS + first + w];
                sums[n*ITEMS + first + w] = had_sum + 64'(codes[w*LANE +: LANE]);
            end
        end
    endtask

    // The estimates of all items, and the list of the nearest ones.
    task automatic rank_items;
        base = {handoff, "/cam/", name, "/"};
        $readmemh({base, "factor.hex"}, factors, 0, ITEMS - 1);
        $readmemh({base, "offset.hex"}, offsets, 0, ITEMS - 1);
        load_ranking;
        for (int n = 0; n < QUERIES; n++) begin
            at_step($sformatf("%s, the ranking of query %0d", name, n));
            @(negedge clk);
            start = 1'b1;
            @(negedge clk);
            start = 1'b0;
            valid = 1'b1;
            for (int m = 0; m < ITEMS; m++) begin
                item = m; sum = sums[n*ITEMS + m]; factor = factors[m]; offset = offsets[m];
                count(2, (sum === want_sums[n*ITEMS + m]) ? 64'd0 : 64'd1);
                @(posedge clk);
                count(3, (estimate === want_estimates[n*ITEMS + m]) ? 64'd0 : 64'd1);
                @(negedge clk);
            end
            valid = 1'b0;
            for (int p = 0; p < LENGTH; p++)
                count(4, (64'(listed[p*32 +: 32]) === want_listed[n*LENGTH + p]) ? 64'd0 : 64'd1);
        end
    endtask

    // Goes through the lines of steps.txt.
    task automatic run_steps;
        for (int t = 0; t < QUERIES*ITEMS; t++) begin sums[t] = '0; want_sums[t] = '0; end
        file = $fopen({handoff, "/steps.txt"}, "r");
        if (file == 0) $fatal(1, "FAIL: no %s/steps.txt", handoff);
        keyword = "";
        while (keyword != "end") begin
            got = $fscanf(file, "%s", keyword);
            if (got != 1) $fatal(1, "FAIL: steps.txt has no end");
            if (keyword == "search") begin
                got = $fscanf(file, "%s %d %d %d %d", name, items, item_cells, queries_listed, value_bits) - 5;
                got = got + $fscanf(file, "%d %d %d %d", measure, word_step, word_top, list_length) - 4;
            end else if (keyword == "store") begin
                got = $fscanf(file, "%s %s %d %d", name, array, first, last) - 4;
                store_words;
            end else if (keyword == "match") begin
                got = $fscanf(file, "%s %s %s %d %d", name, array, segment, first, last) - 5;
                match_words;
            end else if (keyword == "rank") begin
                got = $fscanf(file, "%s", name) - 1;
                rank_items;
            end else begin
                if (keyword != "end") skip_line;
                got = 0;
            end
            if (got != 0) $fatal(1, "FAIL: steps.txt: a line %s has %0d words too few", keyword, -got);
        end
        $fclose(file);
    endtask

    initial begin
        if (!$value$plusargs("HANDOFF=%s", handoff)) handoff = ".";
        if (!$value$plusargs("FAULT=%d", fault)) fault = 0;
        if (!$value$plusargs("TIMEOUT=%d", limit)) limit = 10000;
        if (!$value$plusargs("STEP=%s", step_file)) step_file = "";
        for (int t = 0; t < TAPS; t++) begin compared[t] = 0; differ[t] = 0; end
        repeat (4) @(negedge clk);
        rst = 1'b0;
        for (pass = 0; pass < passes(); pass++) run_steps;
        wrong = 0;
        for (int t = 0; t < TAPS; t++) begin
            $display("%s: %0d compared, %0d differ", tap_name(t), compared[t], differ[t]);
            wrong = wrong + differ[t];
        end
        if (wrong != 0) $fatal(1, "FAIL: %0d %s", wrong, wrong == 1 ? "value differs" : "values differ");
        for (int t = 1; t < TAPS; t++) if (compared[t] == 0) $fatal(1, "FAIL: nothing was compared at %s", tap_name(t));
        $display("PASS");
        $finish;
    end
endmodule
