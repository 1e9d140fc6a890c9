"""Kinds of hardware: a folder each, behind the contract `mallorn.core.target_kind.TargetKind`.

No other room imports this one: a target finds its kind through the registry.
"""
