#!/bin/sh
# The first program of the machine: its root becomes a file system that can be left for another.
if [ ! -e /vm/moved ]; then
    mkdir -p /proc && mount -t proc proc /proc
    mount -t tmpfs -o size=80%,mode=755 root /mnt
    cp -ax /bin /boot /dev /etc /home /lib /lib64 /opt /root /run /sbin /srv /tmp /usr /var /vm /init /mnt/ 2>/dev/null
    mkdir -p /mnt/proc /mnt/sys /mnt/mnt
    touch /mnt/vm/moved
    umount /proc
    exec switch_root /mnt /init
fi
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=755 run /run
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
/usr/bin/python3 -I /vm/checks.py </dev/null
echo "vm: over"
echo o > /proc/sysrq-trigger
sleep 60
