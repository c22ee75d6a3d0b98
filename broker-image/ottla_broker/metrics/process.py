"""The broker's process."""

from ottla_broker.metrics.declaration import counter, gauge

PROCESS_CPU = counter("process_cpu_seconds_total", "CPU time of the broker's process, in seconds.")
PROCESS_RESIDENT = gauge("process_resident_memory_bytes", "Resident memory of the broker's process.")
PROCESS_VIRTUAL = gauge("process_virtual_memory_bytes", "Virtual memory of the broker's process.")
PROCESS_OPEN_FILES = gauge("process_open_fds", "Open files and sockets of the broker's process.")
DISK_READ = gauge("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that the broker's process read from disks.")
DISK_WRITTEN = gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that the broker's process wrote to disks."
)
PROCESS_MAX_FILES = gauge("process_max_fds", "Limit on open files and sockets.")
PROCESS_START = gauge("process_start_time_seconds", "Start time of the broker's process, in seconds since the epoch.")
