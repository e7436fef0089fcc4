"""Programs that run on hosts as ranks of a job, and beside them: sent as one archive, without the controller's code."""
