#!/usr/bin/env bash
# Makes BASE_IMAGE and BUILD_IMAGE of the Dockerfile out of Debian packages, for machines that reach no registry.
#
#   python-base.sh BASE_IMAGE BUILD_IMAGE SCRATCH
#
# BASE_IMAGE, BUILD_IMAGE   the names of the results
# SCRATCH                   a folder for what is made on the way; removed when all went well
#
# Needs root and debootstrap. MIRROR names a Debian mirror; without it, it is the one that apt uses here.
set -euo pipefail
BASE_IMAGE=$1 BUILD_IMAGE=$2 SCRATCH=$3
SUITE=bookworm
ROOT=$SCRATCH/root

mirror() {
  if [ -n "${MIRROR:-}" ]; then echo "$MIRROR"; return; fi
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | sed -n 1p
}

# Debian at its smallest, with Python and the authorities that it trusts.
bootstrap() {
  local from; from=$(mirror)
  [ -n "$from" ] || { echo "apt knows no Debian mirror: run apt-get update, or set MIRROR" >&2; exit 1; }
  debootstrap --variant=minbase --include=python3,ca-certificates "$SUITE" "$ROOT" "$from"
}

# With pip, and with this machine's own authorities, by which it reaches its package index.
make_build_image() {
  cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
  chroot "$ROOT" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-pip
  cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/ca-certificates.crt"
  drop_documentation
  import "$BUILD_IMAGE"
}

# Without what only installs packages: nothing will be installed in an image that is never changed.
make_base_image() {
  local unneeded="apt gpgv debian-archive-keyring libapt-pkg6.0 perl-base e2fsprogs logsave mount util-linux-extra login passwd"
  chroot "$ROOT" dpkg --purge --force-depends --force-remove-essential $unneeded 2>/dev/null || true
  drop_documentation
  import "$BASE_IMAGE"
}

drop_documentation() {
  rm -rf "$ROOT"/usr/share/{doc,man,info,locale,lintian,bash-completion}/* "$ROOT"/var/cache/{apt,debconf}/* \
    "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/log/* "$ROOT"/usr/lib/python3*/{test,idlelib,lib2to3,pydoc_data} \
    "$ROOT"/usr/share/python3/dist/* "$ROOT"/debootstrap
  find "$ROOT" -name __pycache__ -type d -prune -exec rm -rf {} +
}

import() {
  tar -C "$ROOT" --exclude ./dev/* --exclude ./proc/* --exclude ./sys/* -c . |
    docker import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' --change 'CMD ["python3"]' - "$1" >/dev/null
}

rm -rf "$ROOT"
mkdir -p "$SCRATCH"
bootstrap
cp -a "$ROOT" "$ROOT.build"
make_base_image
rm -rf "$ROOT"
mv "$ROOT.build" "$ROOT"
make_build_image
cd /
rm -rf "$SCRATCH"
