package populate
