"""Models to Relax, through the passes of a recipe, to tuning tasks."""
