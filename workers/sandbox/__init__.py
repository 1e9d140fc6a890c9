"""The sandbox, which limits what processes with untrusted models and programs can reach."""
