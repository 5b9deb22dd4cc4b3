    // Queries and right values are those of cam/.
    function automatic int passes;
        passes = 1;
    endfunction

    task automatic load_queries;
        $readmemh({handoff, "/cam/", name, "/", segment, ".queries.hex"}, queries, 0, QUERIES - 1);
    endtask

    task automatic load_matches;
        base = {handoff, "/cam/", name, "/", array};
        $readmemh({base, "/distances.hex"}, want_distances, 0, QUERIES - 1);
        $readmemh({base, "/codes.hex"}, want_codes, 0, QUERIES - 1);
    endtask

    task automatic load_ranking;
        base = {handoff, "/cam/", name, "/"};
        $readmemh({base, "sums.hex"}, want_sums, 0, QUERIES * ITEMS - 1);
        $readmemh({base, "estimates.hex"}, want_estimates, 0, QUERIES * ITEMS - 1);
        $readmemh({base, "shortlist.hex"}, want_listed, 0, QUERIES * LENGTH - 1);
    endtask
