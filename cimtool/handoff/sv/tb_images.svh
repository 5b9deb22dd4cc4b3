    // A line of words of `width` bits in the order of columns; `place` bits belong together.
    localparam int LINE_BITS = WORDS * WORD_BITS;
    function automatic logic [LINE_BITS-1:0] in_columns(input logic [LINE_BITS-1:0] given, input int width, input int place);
        logic [LINE_BITS-1:0] found;
        int at;
        found = given;
        for (int i = 0; MSB_FIRST && i < LINE_BITS; i++) begin
            at = i / place * place + place - 1 - i % place;
            found[i] = given[at / width * width + width - 1 - at % width];
        end
        in_columns = found;
    endfunction
    function automatic logic [LINE-1:0] word_line(input int line);
        logic [LINE_BITS-1:0] given;
        int at;
        at = DESCENDING ? WORD_LINES - 1 - line : line;
        for (int w = 0; w < WORDS; w++) given[w*WORD_BITS +: WORD_BITS] = words[at*WORDS + w];
        word_line = LINE'(in_columns(given, WORD_BITS, CELL_BITS));
    endfunction

    // A word line as the array gets it.
    task automatic load_line(input int line, output logic [LINE-1:0] cells);
        cells = word_line(line);
`ifdef WRITE_VERIFY
        write_cells(line, word_line(line), cells);
`endif
    endtask

    // A pair in two word lines is written at once: in a column its cells are side by side.
    task automatic program_array;
        logic [LINE-1:0] of_line, row;
        if (BINARY) $readmemb({handoff, "/images/", array, "/cells.bin"}, words, 0, WORD_LINES * WORDS - 1);
        else $readmemh({handoff, "/images/", array, "/cells.hex"}, words, 0, WORD_LINES * WORDS - 1);
        for (int r = 0; r < ROWS; r++) begin
            load_line(r * HEIGHT, of_line);
            row = of_line;
            for (int second = 0; second < HEIGHT && HEIGHT == 2; second++) begin
                if (second == 1) load_line(r * 2 + 1, of_line);
                for (int j = 0; j < LINE / (2 * CELL_BITS); j++)
                    row[(j*2 + second)*CELL_BITS +: CELL_BITS] = of_line[j*CELL_BITS +: CELL_BITS];
            end
            write_line(r, row);
        end
    endtask

    // The flags of the next row group.
    task automatic read_flags;
        logic [FLAG_BITS-1:0] word;
        logic [LINE_BITS-1:0] given;
        int scanned;
        given = '0;
        for (int w = 0; w < FLAG_WORDS; w++) begin
            if (BINARY) scanned = $fscanf(flags, "%b", word);
            else scanned = $fscanf(flags, "%h", word);
            if (scanned != 1) $fatal(1, "FAIL: flipped of %s has no line for %s", array, group);
            given[w*FLAG_BITS +: FLAG_BITS] = word;
        end
        flipped = LANES'(in_columns(given, FLAG_BITS, 1));
    endtask
