# Runs as the first process of new namespaces and becomes systemd.
#   $1  a scratch directory: up/ and root/ in it are mounted over, in here only
#   $2  a tree that is copied into the new root
#   $3  the unit to boot into
# The host's files are seen through an overlay, and nothing written in here stays. Nothing of the
# host's kernel is changed either: /sys and /proc/sys are read-only, and no unit of the host is
# started, neither its timers nor what loads modules, security profiles or kernel settings.
set -eu
scratch=$1 tree=$2 goal=$3
init=
for path in /usr/lib/systemd/systemd /lib/systemd/systemd; do
    if [ -x "$path" ]; then init=$path; fi
done
[ -n "$init" ] || { echo "no systemd to boot" >&2; exit 1; }

mount --make-rprivate /
mount -t tmpfs -o mode=755 upper "$scratch/up"
mkdir "$scratch/up/files" "$scratch/up/work"
mount -t overlay -o "lowerdir=/,upperdir=$scratch/up/files,workdir=$scratch/up/work" overlay "$scratch/root"
cd "$scratch/root"

# An overlay shows one file system, and not what is mounted on it.
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for own in run tmp; do
    mount -t tmpfs -o mode=755 "$own" "$own"
done
chmod 1777 tmp

# Without a /dev of its own, systemd would mount the host's.
mount -t tmpfs -o mode=755 dev dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done

# Of the host's units the journal is all that is needed.
mount -t tmpfs -o mode=755 units etc/systemd/system
wants=${init%/systemd}/system/sysinit.target.wants
mount -t tmpfs -o mode=755 wants ".$wants"
ln -s ../systemd-journald.service ".$wants/systemd-journald.service"
for unwanted in timers.target systemd-coredump.socket dbus.socket; do
    ln -s /dev/null "etc/systemd/system/$unwanted"
done
: >etc/fstab

# The root of the stages is a mount, as it is on most machines.
mkdir -p srv/ecluse
mount -t tmpfs -o mode=755 ecluse srv/ecluse
cp -R "$tree/." .

# Not chroot: the kernel gives no user namespace (PrivateUsers=) to who is in one.
mkdir run/host
pivot_root . run/host
cd /
umount --lazy /run/host
rmdir /run/host

systemd-sysusers ecluse.conf
systemd-tmpfiles --create ecluse.conf
export container=other
exec "$init" --system --unit="$goal" --show-status=no </dev/null
