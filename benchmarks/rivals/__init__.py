"""Other engines behind one small protocol, each in a process of an interpreter that has it installed."""
