"""What several tests share: made data, servers, testbeds, locks."""
