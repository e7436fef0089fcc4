"""Flow generators that are pushed to hosts and run there verbatim: standard library only, nothing of ours imported."""
