"""Read packet captures (pcap, pcapng) into tables of conversations, bins, queue pairs and one-way delays."""
