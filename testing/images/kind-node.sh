#!/usr/bin/env bash
# Makes a node image for kind out of Debian packages and of programs that are built already, for machines that reach no
# container registry. One node only: its network is a static configuration, and there are no volumes to provision.
#
#   kind-node.sh IMAGE VERSION PROGRAMS KIND_FILES SCRATCH
#
# IMAGE       the name of the result
# VERSION     of Kubernetes, without a v
# PROGRAMS    a folder with kubelet, kubeadm, kubectl, kube-apiserver, kube-controller-manager, kube-scheduler,
#             kube-proxy, etcd, coredns and pause, statically linked
# KIND_FILES  the folder images/base/files of kind's sources
# SCRATCH     a folder for what is made on the way; removed when all went well
#
# Needs root, debootstrap and docker. MIRROR names a Debian mirror; without it, it is the one that apt uses here.
set -euo pipefail
IMAGE=$1 VERSION=$2 PROGRAMS=$(realpath "$3") KIND_FILES=$(realpath "$4") SCRATCH=$5
SUITE=bookworm
PACKAGES=systemd,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2,bash,ca-certificates,jq,procps,containerd,runc,containernetworking-plugins
ENTRYPOINT='ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
mkdir -p "$SCRATCH"
cd "$SCRATCH"
ROOT=$PWD/root

say() { echo "[${SECONDS} s] $*"; }

# Stage 1: the node's root file system, Debian with the files of kind's own base image.

mirror() {
  if [ -n "${MIRROR:-}" ]; then echo "$MIRROR"; return; fi
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | sed -n 1p
}

install_debian() {
  local from
  from=$(mirror)
  [ -n "$from" ] || { echo "apt knows no Debian mirror: run apt-get update, or set MIRROR" >&2; exit 1; }
  rm -rf "$ROOT"
  debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$ROOT" "$from"
  rm -rf "$ROOT"/var/cache/apt/* "$ROOT"/var/lib/apt/lists/* "$ROOT"/usr/share/{doc,man,locale,info}/*
}

add_files_of_kind() {
  cp -r --no-preserve=mode,ownership "$KIND_FILES"/. "$ROOT"/
  chmod 755 "$ROOT"/usr/local/bin/* "$ROOT"/kind "$ROOT"/kind/bin "$ROOT"/kind/bin/*
  mkdir -p "$ROOT"/etc/kubernetes/manifests "$ROOT"/kind/manifests
  echo -n "v$VERSION" >"$ROOT"/kind/version
  cp "$PROGRAMS"/{kubelet,kubeadm,kubectl} "$ROOT"/usr/bin/
}

# systemd starts what a node needs and nothing of a real machine: no getty, no udev, no mounts.
configure_services() {
  local packaged=$ROOT/lib/systemd/system own=$ROOT/etc/systemd/system service
  rm -f "$packaged"/{multi-user,local-fs,basic}.target.wants/* "$packaged"/sockets.target.wants/*{udev,initctl}* \
    "$packaged"/sysinit.target.wants/systemd-tmpfiles-setup.service "$packaged"/containerd.service "$own"/*.wants/*
  mkdir -p "$own"/multi-user.target.wants
  for service in kubelet containerd undo-mount-hacks; do
    ln -sf /etc/systemd/system/$service.service "$own"/multi-user.target.wants/
  done
  ln -sf /dev/null "$own"/systemd-binfmt.service # it would register handlers in the kernel of the host
  ln -sf /usr/lib/systemd/systemd "$ROOT"/sbin/init
  echo ReadKMsg=no >>"$ROOT"/etc/systemd/journald.conf
}

# Debian's containerd, where kind's files expect one of their own.
configure_containerd() {
  local program
  for program in containerd ctr containerd-shim-runc-v2; do
    ln -sf /usr/bin/$program "$ROOT"/usr/local/bin/$program
  done
  chroot "$ROOT" ctr oci spec |
    chroot "$ROOT" jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
      >"$ROOT"/etc/containerd/cri-base.json
  # To lower oom_score_adj a process needs CAP_SYS_RESOURCE, which some machines withhold.
  sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$ROOT"/etc/containerd/config.toml
}

# The network of one node, instead of kindnetd. kind applies both manifests, so they must be there.
configure_network_and_storage() {
  mkdir -p "$ROOT"/opt/cni/bin "$ROOT"/etc/cni/net.d
  mv "$ROOT"/usr/lib/cni/{ptp,host-local,loopback,portmap} "$ROOT"/opt/cni/bin/
  rm -rf "$ROOT"/usr/lib/cni
  cat >"$ROOT"/etc/cni/net.d/10-static.conflist <<'END'
{
  "cniVersion": "0.3.1",
  "name": "static",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "routes": [{"dst": "0.0.0.0/0"}],
        "ranges": [[{"subnet": "10.244.0.0/24"}]]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
END
  cat >"$ROOT"/kind/manifests/default-cni.yaml <<'END'
apiVersion: v1
kind: ConfigMap
metadata: {name: network-is-static, namespace: kube-system}
END
  cat >"$ROOT"/kind/manifests/default-storage.yaml <<'END'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard}
provisioner: kubernetes.io/no-provisioner
END
}

# Stage 2: the images of the control plane, under the names by which kubeadm asks for them.

names_of_images() {
  "$PROGRAMS"/kubeadm config images list --kubernetes-version "v$VERSION"
  sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$ROOT"/etc/containerd/config.toml
}

make_image() { # NAME: one program of the same name, and nothing else
  local name=$1 program path
  program=${name##*/}
  program=${program%:*}
  path=/usr/local/bin/$program
  if [ "$program" = coredns ]; then path=/coredns; fi # its Deployment names no command, kind's own image has it there
  rm -rf image
  mkdir -p "image/root$(dirname $path)"
  cp "$PROGRAMS/$program" "image/root$path"
  if [ "$program" = kube-proxy ]; then add_packet_filters image/root; fi
  printf '%s\n' 'FROM scratch' 'COPY root /' 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    "ENTRYPOINT [\"$path\"]" >image/Dockerfile
  docker build --quiet --tag "$name" image
}

add_packet_filters() { # ROOT: iptables, nft and conntrack with the libraries that they load
  local program library
  for program in /usr/sbin/{xtables-nft-multi,xtables-legacy-multi,nft,conntrack} \
    $(cd "$ROOT" && find usr/lib/*/xtables -name '*.so' -printf '/%p\n'); do
    for library in $program $(chroot "$ROOT" ldd $program | grep -o '/[^ ]*'); do
      mkdir -p "$1$(dirname $library)"
      cp -L "$ROOT$library" "$1$library"
    done
  done
  for program in {ip,ip6}tables{,-save,-restore}; do
    ln -s xtables-nft-multi "$1/usr/sbin/$program"
  done
}

make_images() {
  local names name
  names=$(names_of_images | sort -u)
  for name in $names; do
    make_image "$name" >/dev/null
    say "made $name"
  done
  docker save --output images.tar $names
  docker image rm $names >/dev/null
}

# Stage 3: the node image, with those images in its containerd, as `kind build node-image` leaves them.

commit() {
  local container=kind-node-being-made-$$
  tar -C "$ROOT" -c . | docker import - "$container" >/dev/null
  printf '%s\n' "FROM $container" 'ENV container=docker' 'STOPSIGNAL SIGRTMIN+3' "$ENTRYPOINT" |
    docker build --quiet --tag "$container" - >/dev/null
  trap 'docker rm --force '"$container"' >/dev/null 2>&1 || true' EXIT
  docker run --detach --name "$container" --volume "$PWD/images.tar:/images.tar:ro" --entrypoint sleep "$container" infinity >/dev/null
  docker exec "$container" bash -ec '
    containerd >/dev/null 2>&1 &
    for _ in $(seq 30); do ctr version >/dev/null 2>&1 && break; sleep 1; done
    ctr --namespace k8s.io images import --all-platforms --no-unpack --digests /images.tar >/dev/null
    for image in $(ctr --namespace k8s.io images ls -q); do
      ctr --namespace k8s.io images label "$image" io.cri-containerd.pinned=pinned >/dev/null
    done
    kill %1 && wait || true'
  docker commit --change "$ENTRYPOINT" "$container" "$IMAGE" >/dev/null
  docker rm --force "$container" >/dev/null
  docker image rm "$container" >/dev/null 2>&1 || true # its layers are the result's
}

install_debian
say "installed Debian $SUITE"
add_files_of_kind
configure_services
configure_containerd
configure_network_and_storage
say "configured the node, $(du -sm "$ROOT" | cut -f1) MB"
make_images
commit
say "made $IMAGE"
cd /
rm -rf "$SCRATCH"
