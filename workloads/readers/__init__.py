"""Readers of what rank programs and frameworks wrote: iterations, spans, communication logs."""
