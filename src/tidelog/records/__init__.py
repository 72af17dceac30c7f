"""Record batches and the lineage of leader epochs: what a log holds."""
