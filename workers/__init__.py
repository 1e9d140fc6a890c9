"""What runs beside the devices: importing, searching, building and measuring."""
