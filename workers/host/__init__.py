"""What the processes of one host share: its cores, who may use them when, and how loaded they are."""
